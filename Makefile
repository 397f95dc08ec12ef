SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
# The steps of one target follow one another even under -j: cargo and go use every core by themselves.
.NOTPARALLEL:

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/nodevigil
PREFIX ?= /usr
CARGO_DENY_VERSION := 0.20.2
CARGO_CYCLONEDX_VERSION := 0.5.9
MDBOOK_VERSION := 0.5.4
ANSIBLE_VERSION := 2.19.14
CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR
# Where Debian has mkfs.ext4 and losetup, also without a login shell.
export PATH := $(PATH):/usr/sbin:/sbin

TARGET := x86_64-unknown-linux-musl
ARM_TARGET := aarch64-unknown-linux-musl
# ring compiles a little C.
export CC_x86_64_unknown_linux_musl ?= musl-gcc
export CC_aarch64_unknown_linux_musl ?= aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER ?= aarch64-linux-gnu-gcc

# The time of everything in the packages: the same sources and binary give the same bytes.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)

# Programs written in Go, each built once for each state of its module: a control plane, the controllers that act by our conditions,
# the definitions of their types, node-problem-detector, … . $KUBEBUILDER_ASSETS, if set, is used as it is.
key = $(shell cat $(1) | sha256sum | cut -c1-16)
TOOLS := $(CACHE)/tools/$(call key,tests/cluster/go.mod tests/cluster/go.sum)
ASSETS := $(or $(KUBEBUILDER_ASSETS),$(TOOLS))
CONSUMERS := $(CACHE)/consumers/$(call key,$(foreach module,karpenter clusterapi,$(sort $(wildcard tests/cluster/$(module)/*))))
CRDS := $(CACHE)/crds/$(call key,tests/cluster/crds/go.mod tests/cluster/crds/go.sum tests/cluster/crds/fetch.sh)
PEER := $(CACHE)/peer/journald-$(call key,tests/cluster/npd/go.mod tests/cluster/npd/go.sum)
PROMTOOL := $(CACHE)/prometheus/$(call key,tests/cluster/promtool/go.mod tests/cluster/promtool/go.sum)
NFPM := $(CACHE)/nfpm/$(call key,packaging/nfpm/go.mod packaging/nfpm/go.sum)
CRANE := $(CACHE)/crane/$(call key,packaging/image/go.mod packaging/image/go.sum)
HELM := $(CACHE)/helm/$(call key,packaging/helm/go.mod packaging/helm/go.sum)
# ansible-core of PyPI, for rollout::ansible.
ANSIBLE := $(CACHE)/ansible/$(ANSIBLE_VERSION)
# kube-scheduler, for pods:: alone.
SCHEDULER := $(CACHE)/scheduler/$(call key,tests/cluster/go.mod tests/cluster/go.sum)
# A stand-in for k3s, for distributions::k3s alone.
K3S := $(CACHE)/k3s/$(call key,tests/cluster/go.mod tests/cluster/go.sum tests/cluster/k3s/main.go)
# The newest containerd, for the guests of debian-13-containerd-2.
CONTAINERD := $(CACHE)/containerd/$(call key,tests/cluster/containerd/go.mod tests/cluster/containerd/go.sum)
# Debian's kernel for the virtual machine of memory::host_thrashes.
KERNEL := $(CACHE)/kernel
# The kubelet for guests that are arm64.
ARM64 := $(CACHE)/arm64/$(call key,tests/cluster/go.mod tests/cluster/go.sum)
# Images of guests, one directory for each suite and architecture of Debian. Each stays as Debian was when it was made; remove one to update it.
GUESTS := $(CACHE)/guests/$(call key,tests/e2e/image.sh)

# Kubelets of other releases. KUBELET=1.34: the stories' nodes run that one. CONTROL_PLANE=1.34: the API server is of that release too.
release_of = $(1)-$(call key,tests/full/kubelet/versions/$(1)/go.mod tests/full/kubelet/versions/$(1)/go.sum)
kubelet_of = $(CACHE)/kubelets/$(call release_of,$(1))
control_plane_of = $(CACHE)/control-planes/$(call release_of,$(1))
KUBELET := $(or $(KUBELET),$(CONTROL_PLANE))

# What the program of the stories reads, and how it is built: the agent is nearly what is shipped, the program that judges it is a
# debug build, whose crates cargo test has built.
STORIES_ENV = KUBEBUILDER_ASSETS="$(ASSETS)" NODEVIGIL_CONSUMERS="$(CONSUMERS)" NODEVIGIL_CRDS="$(CRDS)" NODEVIGIL_PEER="$(PEER)" NODEVIGIL_KERNEL="$(KERNEL)" NODEVIGIL_GUESTS="$(GUESTS)" NODEVIGIL_ARM64="$(ARM64)" NODEVIGIL_HELM="$(HELM)" NODEVIGIL_SCHEDULER="$(SCHEDULER)" NODEVIGIL_ANSIBLE="$(ANSIBLE)" NODEVIGIL_K3S="$(K3S)" NODEVIGIL_CONTAINERD="$(CONTAINERD)"$(if $(KUBELET), NODEVIGIL_KUBELET="$(call kubelet_of,$(KUBELET))")$(if $(CONTROL_PLANE), NODEVIGIL_CONTROL_PLANE="$(call control_plane_of,$(CONTROL_PLANE))")
QUIET := --quiet
define E2E
cargo build $(QUIET) --locked --profile gate --package nodevigil && cargo build $(QUIET) --locked --package nodevigil-e2e && \
$(STORIES_ENV) NODEVIGIL_BIN="$(CARGO_TARGET_DIR)/gate/nodevigil" "$(CARGO_TARGET_DIR)/debug/e2e"
endef

# Programs, each with the Debian packages that bring it, as PROGRAM:PACKAGE:PACKAGE: a comma would end the argument of $(call). A program
# that is there is left alone, wherever it came from: installing Debian's containerd would remove Docker's.
# tests/tidy/install.rs holds each target to them.
BUILD_PROGRAMS := cc:gcc:libc6-dev
RELEASE_PROGRAMS := gcc:gcc:libc6-dev musl-gcc:musl-tools readelf:binutils
ARM_PROGRAMS := aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu:libc6-dev-arm64-cross readelf:binutils
NODE_PROGRAMS := unshare:util-linux systemctl:systemd dbus-daemon:dbus ip:iproute2 containerd:containerd runc:runc nft:nftables mkfs.ext4:e2fsprogs losetup:mount patch:patch
GUEST_PROGRAMS := qemu-system-x86_64:qemu-system-x86 debootstrap:debootstrap busybox:busybox-static depmod:kmod systemd-sysusers:systemd
FULL_PROGRAMS := cloud-init:cloud-init faketime:faketime python3:python3 curl:curl rpm:rpm busybox:busybox-static
ORACLE_PROGRAMS := unshare:util-linux ip:iproute2 containerd:containerd runc:runc openssl:openssl
# Of a header: no program of its package would show that it is there.
PEER_PROGRAMS := sd-journal.h:libsystemd-dev
PACKAGE_PROGRAMS := cloud-init:cloud-init cpio:cpio lintian:lintian rpmlint:rpmlint rpm:rpm
define INSTALL
packages=; \
for pair in $(1); do \
  command -v "$${pair%%:*}" >/dev/null || packages="$$packages $$(echo "$${pair#*:}" | tr : ' ')"; \
done; \
if [ -n "$$packages" ]; then \
  line="apt-get install --no-install-recommends$$packages"; \
  if ! command -v apt-get >/dev/null; then \
    echo "apt-get is missing: install by this system's package manager what Debian calls$$packages" >&2; exit 1; \
  elif [ "$$(id -u)" != 0 ]; then \
    echo "missing Debian packages:$$packages; as root: $$line" >&2; exit 1; \
  fi; \
  echo "== installing Debian packages:$$packages"; \
  export DEBIAN_FRONTEND=noninteractive; \
  $$line -qq -y >/dev/null 2>&1 || { apt-get update -qq && $$line -qq -y >/dev/null; } || exit 1; \
fi
endef
NEED_ROOT = [ "$$(id -u)" = 0 ] || { echo "run this as root: it boots a node in namespaces and control groups" >&2; exit 1; }
NEED_GO = command -v go >/dev/null || { echo "go is missing: install Go 1.26 or later (https://go.dev/dl), or set KUBEBUILDER_ASSETS" >&2; exit 1; }
NEED_CARGO = command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.95 or later (https://rustup.rs)" >&2; exit 1; }

# XDG_CONFIG_HOME: the go command counts its own use in a file below it. GOENV keeps the user's settings all the same. GOTOOLCHAIN: some
# modules need a newer patch release than the one that is installed, and Debian's go does not fetch one by itself.
GO_ENV = GOTOOLCHAIN=auto GOENV="$${GOENV:-$${XDG_CONFIG_HOME:-$$HOME/.config}/go/env}" XDG_CONFIG_HOME="$(CACHE)/go/config" \
  GOCACHE="$(CACHE)/go/build" GOMODCACHE="$(CACHE)/go/mod" GOFLAGS="-modcacherw $(GO_TAGS)"
# Builds into directory $(2) by the command $(3), if it is not there: $(1) is printed.
define GO_BUILD
if [ ! -d "$(2)" ]; then \
  $(NEED_GO); \
  echo "== $(1), into $(2)"; \
  mkdir -p "$(dir $(2))" "$(CACHE)/go"; \
  $(GO_ENV) $(3) || exit 1; \
fi
endef

.PHONY: help docs site test stories nodes gate-needs guest-needs arm64-needs full-needs demo demo-plan picture record well test-full oracle flags configurations rules packed bench fleet fuzz audit release musl packages arm arm-needs test-arm image chart crane helm sbom dist install rust cluster consumers crds kernel scheduler containerd ansible k3s peer promtool nfpm kubelets control-plane cargo-deny mdbook clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  Writes to: this tree, $(CACHE) and a temporary directory."
	@echo "  test, test-full, stories, nodes, demo, well, bench, fleet and oracle need root, as they boot nodes in namespaces, and may install Debian packages."

test: cargo-deny ## The gate: format, lints, dependencies' licences and sources, tests, stories on real nodes
	@tests/step.sh "cargo fmt" cargo fmt --all --check
	@tests/step.sh "cargo clippy" cargo clippy --locked --workspace --all-targets -- -D warnings
	@tests/step.sh "cargo deny" "$(CACHE)/cargo/bin/cargo-deny" --locked --workspace check --hide-inclusion-graph bans licenses sources
	@tests/step.sh "chart" $(MAKE) chart
	@tests/step.sh "cargo doc" env RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --package kubelet-config --package redact
	@tests/step.sh "cargo test" cargo test --locked --no-fail-fast
	@tests/step.sh "stories" $(MAKE) stories TIER=gate
	@tests/step.sh "virtual machine" $(MAKE) stories TIER=gate NODE=debian-13 STORIES=life::virtual_machine

stories: $(if $(NODE),guest-needs) $(if $(findstring arm64,$(NODE)),arm64-needs) $(if $(findstring containerd,$(NODE)),containerd) $(if $(KUBELET),kubelets) $(if $(CONTROL_PLANE),control-plane) $(if $(filter gate,$(TIER)),gate-needs,full-needs consumers crds kernel peer scheduler ansible k3s chart) ## What happens to real nodes, TIER=full (or gate); STORIES="life:: api" for a part, NODE=debian-13 on guests, KUBELET=1.34 with that kubelet, CONTROL_PLANE=1.34 with that Kubernetes, TABLE=FILE for what they provoke
	@$(E2E) --tier $(or $(TIER),full) $(if $(NODE),--node $(NODE)) $(if $(TABLE),--table $(abspath $(TABLE))) $(if $(PLATFORMS),--platforms $(PLATFORMS)) $(STORIES)

ARM64_STORIES := life::crash life::clean_exit life::hang life::operator_stop life::restart_by_signal crash::loop crash::out_of_memory runtime::crash runtime::restart_by_signal config::flag_in_the_wrong_file
KUBELET_STORIES := life::crash life::hang life::operator_stop crash::out_of_memory runtime::crash config::flag_in_the_wrong_file
CONTROL_PLANE_STORIES := life::crash life::operator_stop taints:: privilege:: api::late_write api::foreign bootstrap::ready settings::dry_run
# Two guests at a time would make both slow. All kinds run, whatever became of one.
nodes: guest-needs gate-needs containerd $(if $(findstring arm64,$(NODES)),arm64-needs) ## The gate's stories and those of guests on each kind of node, or on NODES="debian-13", and docs/platforms.md about it (over two hours)
	@failed=; for node in $(or $(NODES),namespaces debian-13 debian-13-containerd-2 debian-12 debian-sid); do \
	  case $$node in *arm64) stories="$(or $(STORIES),$(ARM64_STORIES))";; *) stories="$(STORIES)";; esac; \
	  echo "== $$node"; $(E2E) --tier gate --node $$node --platforms docs/platforms.md $$stories || failed="$$failed $$node"; \
	done; \
	for release in $(or $(KUBELETS),$(if $(NODES),,1.33 1.34 1.35 1.37)); do \
	  echo "== kubelet $$release"; \
	  $(MAKE) stories TIER=gate KUBELET=$$release PLATFORMS=docs/platforms.md STORIES="$(or $(STORIES),$(KUBELET_STORIES))" || failed="$$failed kubelet-$$release"; \
	done; \
	for release in $(or $(CONTROL_PLANES),$(if $(NODES)$(KUBELETS),,1.34 1.37)); do \
	  echo "== Kubernetes $$release"; \
	  $(MAKE) stories CONTROL_PLANE=$$release PLATFORMS=docs/platforms.md STORIES="$(or $(STORIES),$(CONTROL_PLANE_STORIES))" || failed="$$failed kubernetes-$$release"; \
	done; [ -z "$$failed" ] || { echo "stories failed on:$$failed" >&2; exit 1; }

gate-needs: rust
	@$(NEED_ROOT)
	@$(call INSTALL,$(NODE_PROGRAMS))
	@$(MAKE) cluster

guest-needs:
	@$(NEED_ROOT)
	@$(call INSTALL,$(GUEST_PROGRAMS))

# The kubelet and the agent for guests that are arm64.
arm64-needs: arm cluster
	@$(call INSTALL,qemu-system-aarch64:qemu-system-arm)
	@$(call GO_BUILD,the kubelet for arm64 (four minutes),$(ARM64),GOARCH=arm64 GO_TOOLS=k8s.io/kubernetes/cmd/kubelet tests/cluster/build.sh "$(ARM64)")

full-needs:
	@$(NEED_ROOT)
	@$(call INSTALL,$(FULL_PROGRAMS))
	@$(MAKE) gate-needs

demo: QUIET :=
demo: demo-plan gate-needs ## Boots two nodes, breaks their kubelets in four ways, and shows what the Nodes report and how soon
	@$(E2E) --demo

# Names what is missing before anything is installed or built.
demo-plan:
	@$(NEED_ROOT)
	@$(NEED_CARGO)
	@[ -n "$(KUBEBUILDER_ASSETS)" ] || [ -d "$(TOOLS)" ] || $(NEED_GO)
	@echo "How long each step usually takes on two cores; from the second time on, only the demo:"
	@echo "   1 min  Debian packages, if some are missing"
	@[ -n "$(KUBEBUILDER_ASSETS)" ] || echo "  10 min  Kubernetes' programs, built with Go (KUBEBUILDER_ASSETS=DIRECTORY saves this)"
	@echo "   4 min  nodevigil and the demo's own program, built with cargo"
	@echo "   3 min  the demo, which waits until the control plane notices a dead kubelet, and until a node is two minutes old"

picture: rust $(if $(RECORD),record) ## Draws the pictures of docs/ from docs/demo.cast; RECORD=1 first records the demo, as root (four minutes)
	@cargo run --quiet --locked --package picture draw

# With a terminal, as the demo has colors on no other. The picture cuts its pauses.
record: gate-needs
	@cargo build --quiet --locked --package picture
	@script --quiet --return --flush --command '$(E2E) --demo' /dev/null | "$(CARGO_TARGET_DIR)/debug/picture" record

well: full-needs ## A healthy node, disturbed at random for WELL_MINUTES (60), WELL_SEED to repeat a run; ends at the first problem that it shows
	@$(E2E) --well $(or $(WELL_MINUTES),60) $(if $(WELL_SEED),--seed $(WELL_SEED))

test-full: oracle rules packed site test-arm ## What the gate does not run, by hand: oracle, alert rules, packages, site, arm64, all stories (over an hour)
	@$(MAKE) stories TIER=full

# The seed is printed; ORACLE_SEED=S repeats a run, ORACLE_TREES=1 with it a single tree.
# ORACLE_SHARE=10: every tenth change of a configuration.
oracle: flags configurations ## 1,500 random trees of unit files against a real systemd; flags, feature gates and whole configurations against real kubelets
	@$(NEED_ROOT)
	@ORACLE_TREES="$${ORACLE_TREES:-1500}" ORACLE_SEED="$${ORACLE_SEED:-$$(date +%s)}" cargo test --locked --package nodevigil-full --test oracle

flags: rust cluster kubelets
	@KUBEBUILDER_ASSETS="$(ASSETS)" NODEVIGIL_KUBELETS="$(CACHE)/kubelets" cargo test --locked --package nodevigil-full --test kubelet

configurations: rust cluster kubelets
	@$(NEED_ROOT)
	@$(call INSTALL,$(ORACLE_PROGRAMS))
	@KUBEBUILDER_ASSETS="$(ASSETS)" NODEVIGIL_KUBELETS="$(CACHE)/kubelets" cargo test --locked --package nodevigil-full --test trees

rules: promtool
	@"$(PROMTOOL)/promtool" check rules packaging/monitoring/alerts.yaml
	@"$(PROMTOOL)/promtool" test rules packaging/monitoring/alerts_test.yaml

packed: dist
	@$(call INSTALL,$(PACKAGE_PROGRAMS))
	@cp dist/SHA256SUMS dist/first.sha256 && touch README.md && $(MAKE) dist && cmp dist/first.sha256 dist/SHA256SUMS
	@tests/full/packages.sh "$(VERSION)"

bench: full-needs peer release ## What the agent costs compared with node-problem-detector, and how fast it is (twenty minutes; IDLE_SECS of it idle)
	@cargo build --quiet --locked --package nodevigil-e2e
	@$(STORIES_ENV) NODEVIGIL_BIN="$(CURDIR)/dist/nodevigil" "$(CARGO_TARGET_DIR)/debug/e2e" --bench $(or $(IDLE_SECS),600)

fleet: full-needs peer release ## What FLEET_AGENTS (200) agents cost the API server, and what they do when it fails, into docs/performance.md (an hour; 16 GB of memory, and a host that does nothing else)
	@cargo build --quiet --locked --package nodevigil-e2e
	@$(STORIES_ENV) NODEVIGIL_BIN="$(CURDIR)/dist/nodevigil" "$(CARGO_TARGET_DIR)/debug/e2e" --fleet $(or $(FLEET_AGENTS),200) --healthy $(or $(FLEET_MINUTES),10) --table docs/performance.md

docs: rust ## Writes what is generated from the program: docs/reference, packaging/config.d, packaging/man
	@NODEVIGIL_WRITE_DOCS=1 cargo test --quiet --locked --package nodevigil reference::

# What the site has, in the directories in which the links of the documents look for it.
SITE := $(wildcard *.md) LICENSE docs cloud-init/README.md packaging/helm/nodevigil/README.md packaging/kubernetes/README.md packaging/monitoring/README.md crates/kubelet-config/README.md packaging/config.d/00-defaults.toml

site: mdbook ## The documents as a searchable site whose links are checked, in dist/site
	@rm -rf dist/site dist/book && mkdir -p dist/book/src
	@cp --parents -r $(SITE) dist/book/src
	@cp docs/site/book.toml docs/site/wide.css dist/book
	@sed -e 's,](\.\./,](docs/,' -e 's,](docs/\.\./,](,' docs/site/SUMMARY.md >dist/book/src/SUMMARY.md
	@tests/step.sh "mdbook" "$(CACHE)/cargo/bin/mdbook" build dist/book --dest-dir "$(CURDIR)/dist/site"
	@tests/step.sh "links" cargo test --locked --package tidy --test documents -- --ignored
	@echo "dist/site/index.html"

fuzz: rust ## Random input for what reads the kubelet's files and hides secrets, FUZZ_SECONDS (60) for each target
	@$(call INSTALL,c++:g++)
	@fuzz/run.sh "$${FUZZ_SECONDS:-60}"

# Not in `make test`: the answer changes with the day.
audit: cargo-deny ## Whether RustSec's advisories name a crate that we use; fetches their database
	@tests/audit.sh "$(CACHE)/cargo/bin/cargo-deny"

# Builds for $(1), and copies the binary to $(2).
define BUILD
cargo build --locked --package nodevigil --release --target $(1) && mkdir -p "$(dir $(2))" && \
cp "$(CARGO_TARGET_DIR)/$(1)/release/nodevigil" "$(2).new" && mv "$(2).new" "$(2)" || exit 1; \
if readelf -lW "$(2)" | grep -q INTERP; then echo "$(2) is not static" >&2; exit 1; fi; \
echo "$(2): static, $$(stat -c %s "$(2)") bytes"
endef

release: musl ## The static binary, at dist/nodevigil
	@$(call BUILD,$(TARGET),dist/nodevigil)

musl: rust
	@$(call INSTALL,$(RELEASE_PROGRAMS))
	@[ -d "$$(rustc --print target-libdir --target $(TARGET))" ] || rustup target add $(TARGET)

# The deb and the rpm of dist/ARCH/nodevigil. What they contain: packaging/nfpm.yaml.
define PACK
rm -rf dist/$(1)/man && mkdir -p dist/$(1)/completions dist/$(1)/man && \
for shell in bash zsh fish; do dist/nodevigil completions $$shell >dist/$(1)/completions/$$shell || exit 1; done && \
cp packaging/man/* dist/$(1)/man/ && gzip -9n dist/$(1)/man/* && \
packaging/copyright.py $(2) >dist/$(1)/copyright && \
for kind in deb rpm; do \
  VERSION=$(VERSION) ARCH=$(1) "$(NFPM)/nfpm" package --config packaging/nfpm.yaml --packager $$kind --target dist/ || exit 1; \
done
endef

packages: release nfpm ## The deb and the rpm, in dist/
	@rm -f dist/*_amd64.deb dist/*.x86_64.rpm
	@$(call INSTALL,python3:python3)
	@mkdir -p dist/amd64 && cp dist/nodevigil dist/amd64/nodevigil
	@$(call PACK,amd64,$(TARGET))

arm: release nfpm arm-needs ## The same for arm64
	@rm -f dist/*_arm64.deb dist/*.aarch64.rpm
	@$(call INSTALL,python3:python3)
	@$(call BUILD,$(ARM_TARGET),dist/arm64/nodevigil)
	@$(call PACK,arm64,$(ARM_TARGET))

arm-needs: rust
	@$(call INSTALL,$(ARM_PROGRAMS))
	@[ -d "$$(rustc --print target-libdir --target $(ARM_TARGET))" ] || rustup target add $(ARM_TARGET)

# qemu-user of Debian 12 knows neither openat2(2) nor sock_diag(7), which the tests that are left out need.
test-arm: arm-needs ## Unit tests of the arm64 program, under qemu-user
	@$(call INSTALL,qemu-aarch64-static:qemu-user-static)
	@CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER=qemu-aarch64-static cargo test --locked --target $(ARM_TARGET) --lib --bins \
	  --package nodevigil --package kubelet-config --package redact -- \
	  --skip cli::check --skip links_stay_inside_the_root --skip a_listener_and_a_connection

image: packages arm crane ## The OCI image of both architectures, at dist/nodevigil-image.tar
	@packaging/image/build.sh "$(CRANE)/crane" "$(VERSION)" amd64 arm64

chart: helm ## The Helm chart and the manifest for kubectl, in dist/; checked with each option
	@packaging/helm/build.sh "$(HELM)/helm"

# cargo-cyclonedx writes one for each crate of the workspace, next to its Cargo.toml; that of the root package is nodevigil's.
# It is of amd64's binary; arm64's has the same crates but for core_detect.
sbom: rust ## The crates of the binary, as a CycloneDX bill of materials: dist/nodevigil.cdx.json
	@$(call CARGO_INSTALL,cargo-cyclonedx,$(CARGO_CYCLONEDX_VERSION))
	@mkdir -p dist && "$(CACHE)/cargo/bin/cargo-cyclonedx" cyclonedx --quiet --format json --spec-version 1.5 --target $(TARGET) --override-filename nodevigil.cdx
	@sed "s,file://$(CURDIR),file://,g" nodevigil.cdx.json >dist/nodevigil.cdx.json
	@rm -f nodevigil.cdx.json crates/*/nodevigil.cdx.json tests/*/nodevigil.cdx.json

dist: image chart sbom ## Everything of a release, in dist/: packages, image, chart, manifest, bill of materials, SHA256SUMS
	@cd dist && sha256sum *.deb *.rpm nodevigil-image.tar nodevigil-$(VERSION).tgz nodevigil.yaml nodevigil.cdx.json >SHA256SUMS && cat SHA256SUMS

install: ## Copies binary, units, default settings and documents to $(DESTDIR)$(PREFIX); enables and starts nothing
	@test -x dist/nodevigil || { echo "dist/nodevigil is missing: run make release first" >&2; exit 1; }
	@install -D -m 755 dist/nodevigil "$(DESTDIR)$(PREFIX)/bin/nodevigil"
	@for unit in systemd/*.service; do \
	  install -D -m 644 "$$unit" "$(DESTDIR)$(PREFIX)/lib/systemd/system/$${unit##*/}" || exit 1; \
	done
	@sed -i 's,^ExecStart=/usr/bin/,ExecStart=$(PREFIX)/bin/,' "$(DESTDIR)$(PREFIX)"/lib/systemd/system/nodevigil*.service
	@install -D -m 644 systemd/nodevigil.tmpfiles "$(DESTDIR)$(PREFIX)/lib/tmpfiles.d/nodevigil.conf"
	@install -D -m 644 systemd/nodevigil.preset "$(DESTDIR)$(PREFIX)/lib/systemd/system-preset/80-nodevigil.preset"
	@install -D -m 644 packaging/config.d/00-defaults.toml "$(DESTDIR)$(PREFIX)/lib/nodevigil/config.d/00-defaults.toml"
	@for directory in kubernetes kubernetes/samples monitoring; do \
	  install -d "$(DESTDIR)$(PREFIX)/share/nodevigil/$$directory" && \
	  install -m 644 packaging/$$directory/*.* "$(DESTDIR)$(PREFIX)/share/nodevigil/$$directory" || exit 1; \
	done
	@install -d "$(DESTDIR)$(PREFIX)/share/nodevigil/cloud-init" "$(DESTDIR)$(PREFIX)/share/doc/nodevigil/reference"
	@install -m 644 cloud-init/* "$(DESTDIR)$(PREFIX)/share/nodevigil/cloud-init"
	@install -m 644 LICENSE $(wildcard *.md docs/*.md) "$(DESTDIR)$(PREFIX)/share/doc/nodevigil"
	@install -m 644 docs/reference/* "$(DESTDIR)$(PREFIX)/share/doc/nodevigil/reference"
	@echo "installed below $(DESTDIR)$(PREFIX)"

rust:
	@$(NEED_CARGO)
	@$(call INSTALL,$(BUILD_PROGRAMS))

cluster:
	@if [ -n "$(KUBEBUILDER_ASSETS)" ]; then \
	  test -x "$(KUBEBUILDER_ASSETS)/kube-apiserver" || { echo "KUBEBUILDER_ASSETS=$(KUBEBUILDER_ASSETS) holds no kube-apiserver" >&2; exit 1; }; \
	else \
	  $(call GO_BUILD,Kubernetes' programs (ten minutes the first time),$(TOOLS),tests/cluster/build.sh "$(TOOLS)"); \
	fi

consumers:
	@for module in karpenter clusterapi; do \
	  $(call GO_BUILD,$$module (three minutes),$(CONSUMERS)/$$module,tests/cluster/build.sh "$(CONSUMERS)/$$module" tests/cluster/$$module); \
	done

crds:
	@$(call GO_BUILD,definitions of the samples' types,$(CRDS),tests/cluster/crds/fetch.sh "$(CRDS)")

scheduler:
	@$(call GO_BUILD,kube-scheduler,$(SCHEDULER),GO_TOOLS=k8s.io/kubernetes/cmd/kube-scheduler tests/cluster/build.sh "$(SCHEDULER)")

# The nodes' /usr/bin/python3 also needs python3-apt, which Debian has by default.
ansible:
	@$(call INSTALL,python3:python3)
	@[ -x "$(ANSIBLE)/bin/ansible-playbook" ] || tests/step.sh "pip install ansible-core" sh -c 'python3 -m venv "$(ANSIBLE)" && "$(ANSIBLE)/bin/pip" install --quiet --no-cache-dir ansible-core==$(ANSIBLE_VERSION)'

k3s:
	@$(call GO_BUILD,a stand-in for k3s,$(K3S),GO_TOOLS=./k3s tests/cluster/build.sh "$(K3S)")

containerd:
	@$(call GO_BUILD,containerd (three minutes),$(CONTAINERD),tests/cluster/build.sh "$(CONTAINERD)" tests/cluster/containerd)

kernel:
	@$(call INSTALL,$(GUEST_PROGRAMS))
	@[ -d "$(KERNEL)" ] || tests/e2e/kernel.sh "$(KERNEL)"

# Like its release, with the plugin that reads the journal.
PEER_FILES := $(patsubst %,config/%.json,abrt-adaptor docker-monitor health-checker-kubelet kernel-monitor systemd-monitor)
peer: GO_TAGS := -tags=journald
peer:
	@[ -e /usr/include/systemd/sd-journal.h ] || { $(call INSTALL,$(PEER_PROGRAMS)); }
	@$(call GO_BUILD,node-problem-detector (three minutes),$(PEER),GO_CGO=1 tests/cluster/build.sh "$(PEER)" tests/cluster/npd $(PEER_FILES))

promtool: GO_TAGS := -tags=remove_all_sd
promtool:
	@$(call GO_BUILD,promtool (four minutes),$(PROMTOOL),tests/cluster/build.sh "$(PROMTOOL)" tests/cluster/promtool)

nfpm:
	@$(call GO_BUILD,nfpm,$(NFPM),tests/cluster/build.sh "$(NFPM)" "$(CURDIR)/packaging/nfpm")

crane:
	@$(call GO_BUILD,crane,$(CRANE),tests/cluster/build.sh "$(CRANE)" "$(CURDIR)/packaging/image")

helm:
	@$(call GO_BUILD,helm (three minutes),$(HELM),tests/cluster/build.sh "$(HELM)" "$(CURDIR)/packaging/helm")

# One directory for each release, named by its version and the state of its module; with KUBELET=1.34 that one.
kubelets:
	@$(foreach release,$(or $(KUBELET),$(notdir $(wildcard tests/full/kubelet/versions/*))),\
	  $(call GO_BUILD,kubelet $(release) (five minutes),$(call kubelet_of,$(release)),GO_TOOLS=k8s.io/kubernetes/cmd/kubelet tests/cluster/build.sh "$(call kubelet_of,$(release))" tests/full/kubelet/versions/$(release));)

CONTROL_PLANE_PROGRAMS := k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager
control-plane:
	@$(call GO_BUILD,the control plane of $(CONTROL_PLANE) (ten minutes),$(call control_plane_of,$(CONTROL_PLANE)),GO_TOOLS="$(CONTROL_PLANE_PROGRAMS)" tests/cluster/build.sh "$(call control_plane_of,$(CONTROL_PLANE))" tests/full/kubelet/versions/$(CONTROL_PLANE))

# Installs version $(2) of $(1) from crates.io, if it is not there; $(3): further arguments.
define CARGO_INSTALL
case "$$("$(CACHE)/cargo/bin/$(1)" --version 2>/dev/null)" in \
  *$(2)) ;; \
  *) tests/step.sh "cargo install $(1) (some minutes, once)" \
    env -u CARGO_TARGET_DIR cargo install $(1) --locked --version $(2) --root "$(CACHE)/cargo" $(3) ;; \
esac
endef

cargo-deny: rust
	@$(call CARGO_INSTALL,cargo-deny,$(CARGO_DENY_VERSION))

mdbook: rust
	@$(call CARGO_INSTALL,mdbook,$(MDBOOK_VERSION),--no-default-features --features search)

clean: ## Removes target/ and dist/; the cache stays
	@rm -rf "$(CARGO_TARGET_DIR)" dist
	@echo "the cache stays: $(CACHE)"
