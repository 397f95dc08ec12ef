# GNU make. `make help` lists the targets.
#
# What is written, and where: this tree (target/, dist/), the cache folder below, and a temporary folder ($TMPDIR or /tmp).
# Besides, what apt, rustup and cargo keep for themselves: `make setup` installs Debian packages and a Rust target, and cargo
# has its registry in ~/.cargo.

SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
# The steps of one target follow one another even under -j: cargo and go use every core by themselves.
.NOTPARALLEL:

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/nodevigil
PREFIX ?= /usr
TARGET := x86_64-unknown-linux-musl
CARGO_DENY_VERSION := 0.20.2

# One target folder for every build; in the tree unless said otherwise.
CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR

# ring compiles a little C.
export CC_x86_64_unknown_linux_musl ?= musl-gcc

# The Kubernetes tools, one folder for each state of go.mod and go.sum. $KUBEBUILDER_ASSETS, if set, is used as it is.
TOOLS_KEY := $(shell cat tests/cluster/go.mod tests/cluster/go.sum | sha256sum | cut -c1-16)
TOOLS := $(CACHE)/tools/$(TOOLS_KEY)
ASSETS := $(or $(KUBEBUILDER_ASSETS),$(TOOLS))

# The controllers that read our conditions, in two small Go modules of ours around the real ones, and what both share.
CONSUMERS_KEY := $(shell cat $(foreach module,karpenter clusterapi stepped,$(sort $(wildcard tests/cluster/$(module)/*))) | sha256sum | cut -c1-16)
CONSUMERS := $(CACHE)/consumers/$(CONSUMERS_KEY)

# The definitions of the types that packaging/kubernetes/samples has, out of the projects' own modules.
CRDS_KEY := $(shell cat tests/cluster/crds/go.mod tests/cluster/crds/go.sum tests/cluster/crds/fetch.sh | sha256sum | cut -c1-16)
CRDS := $(CACHE)/crds/$(CRDS_KEY)

# node-problem-detector, that we are measured beside, with the configuration files it ships.
PEER_KEY := $(shell cat tests/cluster/npd/go.mod tests/cluster/npd/go.sum | sha256sum | cut -c1-16)
PEER := $(CACHE)/peer/$(PEER_KEY)

# promtool, which checks the alert rules, and Prometheus' own parsers, which read what we expose.
PROMETHEUS_KEY := $(shell cat tests/cluster/promtool/go.mod tests/cluster/promtool/go.sum tests/cluster/promtool/*/main.go | sha256sum | cut -c1-16)
PROMETHEUS := $(CACHE)/prometheus/$(PROMETHEUS_KEY)

# The kernel and the root file system of the guest in tests/vm, for each state of what makes them.
VM_KEY := $(shell cat tests/vm/image.sh systemd/nodevigil.sysusers systemd/nodevigil.tmpfiles | sha256sum | cut -c1-16)
VM := $(CACHE)/vm/$(VM_KEY)

# nfpm, which makes the deb and the rpm.
NFPM_KEY := $(shell cat packaging/nfpm/go.mod packaging/nfpm/go.sum | sha256sum | cut -c1-16)
NFPM := $(CACHE)/nfpm/$(NFPM_KEY)

# The time that everything in the packages has: the same sources give the same bytes.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)

# What the node tier, the demo and the bench need: the binary that is shipped, the control plane's binaries, its consumers,
# whom we are measured beside, and who reads our metrics.
NODE_ENV := NODEVIGIL_BIN="$(CURDIR)/dist/nodevigil" KUBEBUILDER_ASSETS="$(ASSETS)" NODEVIGIL_CONSUMERS="$(CONSUMERS)" \
  NODEVIGIL_CRDS="$(CRDS)" \
  NODEVIGIL_PEER="$(PEER)" NODEVIGIL_PROMETHEUS="$(PROMETHEUS)" NODEVIGIL_NFPM="$(NFPM)/nfpm"

VM_ENV := NODEVIGIL_VM="$(VM)" NODEVIGIL_GUEST="$(CARGO_TARGET_DIR)/$(TARGET)/release/guest" $(NODE_ENV)

# Programs that the tests start, each with the Debian packages that bring it. A program that is there is left alone,
# wherever it came from: installing Debian's containerd would remove Docker's.
NEEDED_BY_STORIES := unshare:util-linux systemctl:systemd dbus-daemon:dbus ip:iproute2 containerd:containerd runc:runc nft:nftables mkfs.ext4:e2fsprogs losetup:mount
NEEDED := $(NEEDED_BY_STORIES) gcc:gcc,libc6-dev musl-gcc:musl-tools cloud-init:cloud-init openssl:openssl \
  curl:curl python3:python3-minimal strace:strace lintian:lintian rpmlint:rpmlint rpm:rpm \
  qemu-system-x86_64:qemu-system-x86 busybox:busybox-static dmsetup:dmsetup

# Installs what is missing of such a list.
define INSTALL
PATH="$$PATH:/usr/sbin:/sbin"; packages=; \
for pair in $(1); do \
  command -v "$${pair%%:*}" >/dev/null || packages="$$packages $$(echo "$${pair#*:}" | tr , ' ')"; \
done; \
if [ -n "$$packages" ]; then \
  line="apt-get install --no-install-recommends$$packages"; \
  if ! command -v apt-get >/dev/null; then \
    echo "missing (names of the Debian packages):$$packages" >&2; exit 1; \
  elif [ "$$(id -u)" != 0 ]; then \
    echo "missing Debian packages:$$packages" >&2; echo "as root: $$line" >&2; exit 1; \
  fi; \
  echo "== installing Debian packages:$$packages"; \
  export DEBIAN_FRONTEND=noninteractive; \
  $$line -qq -y >/dev/null 2>&1 || { apt-get update -qq && $$line -qq -y >/dev/null; } || exit 1; \
fi
endef

.PHONY: help demo story stories stories-setup bench-next test test-full cluster well well-short packages arm nfpm packed prometheus rules unit trees kubelet kubelets consumers crds peer node guest memory vm promises check docs table fleet bench soak order oracle fuzz audit release next install tools setup cargo-deny clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  Writes to: this tree, $(CACHE) and a temporary folder."
	@echo "  setup (part of demo, test-full, bench, release) also has apt, rustup and cargo install what is missing."
	@echo "  The node tier, the guest, the oracle, demo and bench need root: they boot a node in namespaces."

demo: setup tools release ## Boots a real node, breaks its kubelet, shows what the API server sees
	@echo "== demo"
	@$(NODE_ENV) cargo run --quiet --locked --package nodevigil --example demo

story: setup tools release ## The life of one real node: cloud-init, deb, preflight, kubeadm join, a killed kubelet, upgrade, removal
	@echo "== story"
	@$(NODE_ENV) cargo test --quiet --locked --package nodevigil --test node -- story::

test: cargo-deny ## The gate: format, lints, dependencies' licences and sources, tests, stories on a real node (needs root)
	@tests/step.sh "cargo fmt" cargo fmt --all --check
	@tests/step.sh "cargo clippy" cargo clippy --locked --all-targets -- -D warnings
	@tests/step.sh "cargo deny" "$(CACHE)/cargo/bin/cargo-deny" --locked --workspace check --hide-inclusion-graph bans licenses sources
	@tests/step.sh "cargo test" cargo test --locked --no-fail-fast
	@tests/step.sh "stories" $(MAKE) stories TIER=gate

# The agent is nearly what is shipped; the program that judges it is a debug build, whose crates cargo test has built.
stories: stories-setup cluster ## What happens to real nodes, TIER=full (or gate); STORIES="life:: api" for a part
	@cargo build --quiet --locked --profile gate --package nodevigil-agent
	@cargo build --quiet --locked --package nodevigil-e2e
	@NODEVIGIL_BIN="$(CARGO_TARGET_DIR)/gate/nodevigil" KUBEBUILDER_ASSETS="$(ASSETS)" \
	  "$(CARGO_TARGET_DIR)/debug/e2e" --tier $(or $(TIER),full) $(STORIES)

bench-next: stories-setup cluster peer next ## What the second version's agent costs beside node-problem-detector, and how fast it is (twenty minutes)
	@cargo build --quiet --locked --package nodevigil-e2e
	@NODEVIGIL_BIN="$(CURDIR)/dist/next/nodevigil" NODEVIGIL_PEER="$(PEER)" KUBEBUILDER_ASSETS="$(ASSETS)" \
	  "$(CARGO_TARGET_DIR)/debug/e2e" --bench $(or $(IDLE_SECS),600)

stories-setup:
	@$(call INSTALL,$(NEEDED_BY_STORIES) $(if $(filter gate,$(TIER)),,faketime:faketime python3:python3-minimal))

# What is not in the gate. Some of its tests have deadlines that a busy machine does not keep.
test-full: setup check unit trees tools rules kubelet release packed node well-short memory promises ## The first version's lints and tests: unit, integration, oracle, real node, promises in short form (by hand; over an hour)

# With PROPTEST_CASES the histories of `health::flips` have their full length; 256 cases are proptest's own number.
unit:
	@echo "== unit and integration tests"
	@PROPTEST_CASES=$${PROPTEST_CASES:-256} cargo test --locked --package nodevigil --lib --test it --test allocations

# Fifty trees, the same in every run.
trees:
	@echo "== unit files against a real systemd"
	@cargo test --locked --package nodevigil --test oracle

rules: prometheus
	@echo "== alert rules, each fired by promtool"
	@"$(PROMETHEUS)/promtool" check rules packaging/monitoring/alerts.yaml
	@"$(PROMETHEUS)/promtool" test rules packaging/monitoring/alerts_test.yaml

packed:
	@echo "== packages, made twice and looked into"
	@$(NODE_ENV) cargo test --locked --package nodevigil --test packages

kubelet:
	@echo "== flags against the real kubelet"
	@KUBEBUILDER_ASSETS="$(ASSETS)" cargo test --locked --package nodevigil --test kubelet

node:
	@echo "== tests on a real node, with dist/nodevigil"
	@$(NODE_ENV) cargo test --locked --package nodevigil --test node -- --skip well::node

# The image is made in seconds; its kernel is 26 MB from Debian.
guest: setup
	@if [ ! -d "$(VM)" ]; then \
	  echo "== the guest's image, into $(VM)"; \
	  rm -rf "$(CACHE)/vm"; \
	  tests/vm/image.sh "$(VM)"; \
	fi
	@cargo build --quiet --locked --release --target $(TARGET) --manifest-path tests/vm/guest/Cargo.toml

memory: guest
	@echo "== a guest without memory, short form"
	@$(VM_ENV) cargo test --locked --package nodevigil --test vm -- short

# One emulated processor, which takes a core of a machine that is otherwise quiet.
vm: setup tools release guest ## Every load on memory in a guest under qemu, VM_RUNS times (5), and each bad reason once on cgroup v2 (80 minutes, and the latter)
	@echo "== guests without memory"
	@rm -f dist/vm.jsonl
	@NODEVIGIL_ROWS="$(CURDIR)/dist/vm.jsonl" $(VM_ENV) cargo test --locked --package nodevigil --test vm -- full
	@echo "== a guest in which each bad reason is provoked, on cgroup v2"
	@NODEVIGIL_ROWS="$(CURDIR)/dist/vm.jsonl" $(VM_ENV) cargo test --locked --package nodevigil --test vm -- reasons
	@NODEVIGIL_ROWS="$(CURDIR)/dist/vm.jsonl" cargo test --quiet --locked --package nodevigil --test it -- tables::

# The harness is a debug build: what is measured is dist/nodevigil.
promises:
	@echo "== promises, short form"
	@NODEVIGIL_BENCH=short $(NODE_ENV) cargo bench --locked --package nodevigil --profile dev --bench promises

# Each test appends what it saw; another run's lines are put away first. For a part: NODEVIGIL_ROWS=… by hand.
table: setup tools release ## Runs the node tests and writes the tables in docs/promises.md from what they saw
	@rm -f dist/rows.jsonl
	@NODEVIGIL_ROWS="$(CURDIR)/dist/rows.jsonl" $(NODE_ENV) cargo test --locked --package nodevigil --test node
	@NODEVIGIL_ROWS="$(CURDIR)/dist/rows.jsonl" cargo test --quiet --locked --package nodevigil --test it -- tables::

# Four CPU minutes. The node tests have its short form: a tenth and a half of the fleet at once.
fleet: setup tools release ## What Karpenter and Cluster API delete of 300 nodes in an hour; writes the table in docs/consumers.md (minutes)
	@rm -f dist/fleet.jsonl
	@NODEVIGIL_FLEET=full NODEVIGIL_ROWS="$(CURDIR)/dist/fleet.jsonl" $(NODE_ENV) cargo test --locked --package nodevigil --test node consumers::
	@NODEVIGIL_ROWS="$(CURDIR)/dist/fleet.jsonl" cargo test --quiet --locked --package nodevigil --test it -- tables::

bench: setup tools release ## Measures every promise and writes dist/bench.json (an hour)
	@echo "== promises"
	@$(NODE_ENV) cargo bench --locked --package nodevigil --profile dev --bench promises
	@echo "== failures of the API, five minutes of each"
	@FAULT_SECONDS=300 $(NODE_ENV) cargo test --locked --package nodevigil --test node faults::
	@echo "== racing writers, 10 000 writes"
	@RACING_WRITES=10000 $(NODE_ENV) cargo test --locked --package nodevigil --test node racing::no_lost_update
	@echo "== beside node-problem-detector, twelve kills of each kind and ten idle minutes"
	@rm -f dist/peer.jsonl
	@PEER_KILLS=12 NODEVIGIL_ROWS="$(CURDIR)/dist/peer.jsonl" $(NODE_ENV) cargo test --locked --package nodevigil --test node peer::
	@NODEVIGIL_ROWS="$(CURDIR)/dist/peer.jsonl" cargo test --quiet --locked --package nodevigil --test it -- tables::

# WELL_MINUTES=480 is the full length, WELL_SEED=S repeats a draw. `make test-full` has ten minutes of it.
well: setup tools release ## A node that is well, WELL_MINUTES long (60; 480 in full): disturbances at random, and not one False
	@echo "== a node that stays well"
	@rm -f dist/well.jsonl
	@WELL_MINUTES="$${WELL_MINUTES:-60}" WELL_SEED="$${WELL_SEED:-$$(date +%s)}" NODEVIGIL_ROWS="$(CURDIR)/dist/well.jsonl" \
	  $(NODE_ENV) cargo test --locked --package nodevigil --test node well::
	@NODEVIGIL_ROWS="$(CURDIR)/dist/well.jsonl" cargo test --quiet --locked --package nodevigil --test it -- tables::

# After the node tier and not beside it: what starves this node shows in the pressure of the whole machine.
well-short:
	@echo "== a node that stays well, ten minutes"
	@WELL_MINUTES=10 $(NODE_ENV) cargo test --locked --package nodevigil --test node -- well::node

# SOAK_SECONDS for another length. Its two-minute form is the idle part of what `make test-full` ends with.
soak: setup tools release ## An idle hour: CPU, memory, descriptors, threads, wake-ups; writes dist/soak.json
	@echo "== soak"
	@NODEVIGIL_BENCH=soak $(NODE_ENV) cargo bench --locked --package nodevigil --profile dev --bench promises

# With names in it, which the shipped binary has not: the next release is linked anew.
order: setup tools ## Writes packaging/order.ld: which functions lie side by side in the binary (minutes)
	@echo "== order"
	@CARGO_PROFILE_RELEASE_STRIP=false cargo build --locked --package nodevigil --release --target $(TARGET) --bin nodevigil
	@NODEVIGIL_BENCH=order $(NODE_ENV) NODEVIGIL_BIN="$(CARGO_TARGET_DIR)/$(TARGET)/release/nodevigil" \
	  cargo bench --locked --package nodevigil --profile dev --bench promises

# The seed is printed; ORACLE_SEED=S repeats a run, ORACLE_TREES=1 with it a single tree.
oracle: setup tools kubelets ## A thousand random trees against a real systemd, flags against four releases of the kubelet
	@echo "== unit files against a real systemd"
	@ORACLE_TREES="$${ORACLE_TREES:-1000}" ORACLE_SEED="$${ORACLE_SEED:-$$(date +%s)}" cargo test --locked --package nodevigil --test oracle
	@echo "== flags against real kubelets"
	@KUBEBUILDER_ASSETS="$(ASSETS)" NODEVIGIL_KUBELETS="$(CACHE)/kubelets" cargo test --locked --package nodevigil --test kubelet

# FUZZ_SECONDS for each target; the first build takes six minutes.
fuzz: ## Random input for the readers of what others write, a minute for each of twenty targets
	@fuzz/run.sh "$${FUZZ_SECONDS:-60}"

# Not in `make test`: the answer changes with the day, and the database is no package registry's.
audit: cargo-deny ## Whether RustSec's advisories name a crate that we use; fetches their database (not part of make test)
	@echo "== cargo deny check advisories"
	@tests/audit.sh "$(CACHE)/cargo/bin/cargo-deny"

check: ## The first version's lints and unit files
	@echo "== cargo clippy"
	@cargo clippy --locked --package nodevigil --all-targets -- -D warnings
	@echo "== systemd"
	@systemd/check.sh

docs: ## Writes what is made from the program: docs/reference/{rules,conditions,metrics}.md, packaging/config.d, and the output in README.md
	@NODEVIGIL_WRITE_DOCS=1 cargo test --quiet --locked --package nodevigil --test it -- the_rules_document the_conditions_document the_maintenance_table the_consumers_table the_metrics_document the_commented_configuration the_readme_shows

release: setup ## The static binary, at dist/nodevigil
	@echo "== release build"
	@cargo build --locked --package nodevigil --release --target $(TARGET) --bin nodevigil
	@mkdir -p dist
	@cp "$(CARGO_TARGET_DIR)/$(TARGET)/release/nodevigil" dist/nodevigil.new && mv dist/nodevigil.new dist/nodevigil
	@if readelf -lW dist/nodevigil | grep -q INTERP; then echo "dist/nodevigil is not static" >&2; exit 1; fi
	@echo "dist/nodevigil: static, $$(stat -c %s dist/nodevigil) bytes"

next: setup ## The second version's agent, static, with its unit files, in dist/next/
	@CARGO_PROFILE_RELEASE_PANIC=unwind cargo build --locked --package nodevigil-agent --release --target $(TARGET)
	@mkdir -p dist/next
	@cp "$(CARGO_TARGET_DIR)/$(TARGET)/release/nodevigil" dist/next/nodevigil.new && mv dist/next/nodevigil.new dist/next/nodevigil
	@cp crates/agent/systemd/nodevigil.service crates/agent/systemd/nodevigil-preflight.service crates/agent/systemd/nodevigil.tmpfiles dist/next/
	@if readelf -lW dist/next/nodevigil | grep -q INTERP; then echo "dist/next/nodevigil is not static" >&2; exit 1; fi
	@echo "dist/next/nodevigil: static, $$(stat -c %s dist/next/nodevigil) bytes"

# The list of what is packed: packaging/nfpm.yaml.
packages: release nfpm ## The deb and the rpm of dist/nodevigil, in dist/
	@echo "== packages"
	@cargo run --quiet --locked --package nodevigil --example packages -- --binary dist/nodevigil --nfpm "$(NFPM)/nfpm" --out dist --epoch "$(SOURCE_DATE_EPOCH)"

# Debian's cross compiler for ring's C and for linking; the rest of it is Rust's own.
arm: setup nfpm ## The same for arm64, cross-compiled; built and packed, not tested on such a machine
	@command -v aarch64-linux-gnu-gcc >/dev/null || { echo "aarch64-linux-gnu-gcc is missing: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross" >&2; exit 1; }
	@[ -d "$$(rustc --print target-libdir --target aarch64-unknown-linux-musl)" ] || rustup target add aarch64-unknown-linux-musl
	@echo "== release build for arm64"
	@CC_aarch64_unknown_linux_musl=aarch64-linux-gnu-gcc CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=aarch64-linux-gnu-gcc \
	  cargo build --locked --package nodevigil --release --target aarch64-unknown-linux-musl --bin nodevigil
	@cargo run --quiet --locked --package nodevigil --example packages -- --arch arm64 --binary "$(CARGO_TARGET_DIR)/aarch64-unknown-linux-musl/release/nodevigil" \
	  --nfpm "$(NFPM)/nfpm" --out dist --epoch "$(SOURCE_DATE_EPOCH)"

install: ## Copies binary, units and documents to $(DESTDIR)$(PREFIX); enables and starts nothing
	@test -x dist/nodevigil || { echo "dist/nodevigil is missing: run make release first" >&2; exit 1; }
	@install -D -m 755 dist/nodevigil "$(DESTDIR)$(PREFIX)/bin/nodevigil"
	@for unit in systemd/*.service systemd/*.socket systemd/*.slice; do \
	  install -D -m 644 "$$unit" "$(DESTDIR)$(PREFIX)/lib/systemd/system/$${unit##*/}" || exit 1; \
	done
	@sed -i 's,^ExecStart=/usr/bin/,ExecStart=$(PREFIX)/bin/,' "$(DESTDIR)$(PREFIX)"/lib/systemd/system/nodevigil*.service
	@install -D -m 644 systemd/nodevigil.sysusers "$(DESTDIR)$(PREFIX)/lib/sysusers.d/nodevigil.conf"
	@install -D -m 644 systemd/nodevigil.tmpfiles "$(DESTDIR)$(PREFIX)/lib/tmpfiles.d/nodevigil.conf"
	@install -d "$(DESTDIR)$(PREFIX)/share/nodevigil/kubernetes/samples" "$(DESTDIR)$(PREFIX)/share/nodevigil/monitoring" "$(DESTDIR)$(PREFIX)/share/doc/nodevigil/reference"
	@install -m 644 packaging/kubernetes/samples/* "$(DESTDIR)$(PREFIX)/share/nodevigil/kubernetes/samples"
	@install -m 644 packaging/kubernetes/*.* "$(DESTDIR)$(PREFIX)/share/nodevigil/kubernetes"
	@install -m 644 packaging/monitoring/* "$(DESTDIR)$(PREFIX)/share/nodevigil/monitoring"
	@install -D -m 644 systemd/nodevigil.preset "$(DESTDIR)$(PREFIX)/lib/systemd/system-preset/80-nodevigil.preset"
	@install -m 644 packaging/config.d/00-defaults.toml "$(DESTDIR)$(PREFIX)/share/doc/nodevigil/defaults.toml"
	@install -m 644 LICENSE $(wildcard *.md) $(wildcard docs/*.md) "$(DESTDIR)$(PREFIX)/share/doc/nodevigil"
	@install -m 644 docs/reference/* "$(DESTDIR)$(PREFIX)/share/doc/nodevigil/reference"
	@echo "installed below $(DESTDIR)$(PREFIX)"

# XDG_CONFIG_HOME: the go command counts its own use in a file below it. GOENV keeps the user's settings all the same.
GO_ENV = GOENV="$${GOENV:-$${XDG_CONFIG_HOME:-$$HOME/.config}/go/env}" XDG_CONFIG_HOME="$(CACHE)/go/config" \
  GOCACHE="$(CACHE)/go/build" GOMODCACHE="$(CACHE)/go/mod" GOFLAGS=-modcacherw
NEED_GO = command -v go >/dev/null || { echo "go is missing: install Go 1.26 or later (https://go.dev/dl), or set KUBEBUILDER_ASSETS" >&2; exit 1; }

tools: cluster consumers crds peer prometheus nfpm ## The pinned Kubernetes programs, into the cache (ten minutes the first time)

# A control plane, the kubelet, kubeadm and kubectl: all that the stories start.
cluster:
	@if [ -n "$(KUBEBUILDER_ASSETS)" ]; then \
	  test -x "$(KUBEBUILDER_ASSETS)/kube-apiserver" || { echo "KUBEBUILDER_ASSETS=$(KUBEBUILDER_ASSETS) holds no kube-apiserver" >&2; exit 1; }; \
	elif [ ! -d "$(TOOLS)" ]; then \
	  $(NEED_GO); \
	  echo "== Kubernetes tools, into $(TOOLS)"; \
	  mkdir -p "$(CACHE)/tools" "$(CACHE)/go"; \
	  $(GO_ENV) tests/cluster/build.sh "$(TOOLS)"; \
	fi

# Two to five minutes and 160 MB.
consumers:
	@if [ ! -d "$(CONSUMERS)" ]; then rm -rf "$(CACHE)/consumers"; fi
	@for module in karpenter clusterapi; do \
	  if [ ! -d "$(CONSUMERS)/$$module" ]; then \
	    $(NEED_GO); \
	    echo "== controllers that read our conditions: $$module, into $(CONSUMERS) (three minutes)"; \
	    mkdir -p "$(CONSUMERS)" "$(CACHE)/go"; \
	    $(GO_ENV) tests/cluster/build.sh "$(CONSUMERS)/$$module" tests/cluster/$$module || exit 1; \
	  fi; \
	done

crds:
	@if [ ! -d "$(CRDS)" ]; then \
	  $(NEED_GO); \
	  echo "== definitions of the samples' types, into $(CRDS) (13 MB of modules)"; \
	  rm -rf "$(CACHE)/crds"; \
	  mkdir -p "$(CACHE)/crds" "$(CACHE)/go"; \
	  $(GO_ENV) tests/cluster/crds/fetch.sh "$(CRDS)"; \
	fi

# One to three minutes and 55 MB; from nothing 0.9 GB of modules and 0.7 GB of build results in Go's caches, part of it the others'.
peer:
	@if [ ! -d "$(PEER)" ]; then \
	  $(NEED_GO); \
	  echo "== node-problem-detector, into $(PEER) (one to three minutes)"; \
	  rm -rf "$(CACHE)/peer"; \
	  mkdir -p "$(CACHE)/peer" "$(CACHE)/go"; \
	  $(GO_ENV) tests/cluster/build.sh "$(PEER)" tests/cluster/npd config/kernel-monitor.json config/health-checker-kubelet.json; \
	fi

# Without the service discovery of every cloud.
prometheus:
	@if [ ! -d "$(PROMETHEUS)" ]; then \
	  $(NEED_GO); \
	  echo "== promtool, into $(PROMETHEUS) (two to four minutes)"; \
	  rm -rf "$(CACHE)/prometheus"; \
	  mkdir -p "$(CACHE)/prometheus" "$(CACHE)/go"; \
	  $(GO_ENV) GOFLAGS="-modcacherw -tags=remove_all_sd" tests/cluster/build.sh "$(PROMETHEUS)" tests/cluster/promtool; \
	fi

nfpm:
	@if [ ! -d "$(NFPM)" ]; then \
	  $(NEED_GO); \
	  echo "== nfpm, into $(NFPM) (half a minute)"; \
	  rm -rf "$(CACHE)/nfpm"; \
	  mkdir -p "$(CACHE)/nfpm" "$(CACHE)/go"; \
	  $(GO_ENV) tests/cluster/build.sh "$(NFPM)" "$(CURDIR)/packaging/nfpm"; \
	fi

# One folder a release, named by its version and the state of its go.mod.
kubelets:
	@for folder in tests/kubelet/versions/*/; do \
	  out="$(CACHE)/kubelets/$$(basename "$$folder")-$$(cat "$$folder/go.mod" "$$folder/go.sum" | sha256sum | cut -c1-16)"; \
	  if [ ! -d "$$out" ]; then \
	    $(NEED_GO); \
	    echo "== kubelet $$(basename "$$folder"), into $$out (five minutes)"; \
	    mkdir -p "$(CACHE)/kubelets" "$(CACHE)/go"; \
	    rm -rf "$(CACHE)/kubelets/$$(basename "$$folder")-"*; \
	    $(GO_ENV) tests/cluster/build.sh "$$out" "$$folder" || exit 1; \
	  fi; \
	done

setup: ## What the tests need from Debian and rustup, if it is missing
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.95 or later (https://rustup.rs)" >&2; exit 1; }
	@$(call INSTALL,$(NEEDED))
	@if [ ! -d "$$(rustc --print target-libdir --target $(TARGET))" ]; then \
	  command -v rustup >/dev/null || { echo "the Rust target $(TARGET) is missing, and so is rustup to add it" >&2; exit 1; }; \
	  echo "== Rust target $(TARGET)"; \
	  rustup target add $(TARGET); \
	fi

# Built in a temporary folder: its objects are of no use to the project's own.
cargo-deny:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.95 or later (https://rustup.rs)" >&2; exit 1; }
	@if [ "$$("$(CACHE)/cargo/bin/cargo-deny" --version 2>/dev/null)" != "cargo-deny $(CARGO_DENY_VERSION)" ]; then \
	  tests/step.sh "cargo install cargo-deny (some minutes, once)" \
	    env -u CARGO_TARGET_DIR cargo install cargo-deny --locked --version $(CARGO_DENY_VERSION) --root "$(CACHE)/cargo"; \
	fi

clean: ## Removes target/ and dist/; the cache stays
	@rm -rf "$(CARGO_TARGET_DIR)" dist
	@echo "the cache stays: $(CACHE)"
