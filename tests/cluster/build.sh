#!/bin/sh
# Builds the pinned Kubernetes programs (`tool` lines of a go.mod) into OUT, each under its usual name.
#   build.sh OUT [MODULE [FILE...]]
# MODULE is the directory of the go.mod, this script's own if it is left out. FILEs of the first program's own module are
# copied next to the programs. GO_TOOLS, if set, are other packages to build than those of the `tool` lines. GO_CGO=1 is for programs
# that call a library of the system; the others are static.
# Builds into a directory next to OUT and renames it at the end, so that an interrupted build never looks finished.
# Go's own caches are the caller's (GOCACHE, GOMODCACHE): the Makefile points them into the project's cache directory.
set -eu
out=$1
cd "${2:-$(dirname "$0")}"
shift $(($# < 2 ? $# : 2))
partial="$out.partial"
mkdir -p "$partial"
flags="-s -w"
# Without these, Kubernetes' own binaries report v0.0.0-master and kubeadm refuses to talk to them.
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes 2>/dev/null || true)
if [ -n "$version" ]; then
  minor=$(echo "$version" | cut -d. -f2)
  stamp=k8s.io/component-base/version
  flags="$flags -X $stamp.gitVersion=$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=$minor"
fi
tools=${GO_TOOLS:-$(go list tool)}
count=$(echo "$tools" | wc -w)
i=0
for tool in $tools; do
  i=$((i + 1))
  case $tool in
    go.etcd.io/etcd/*) name=etcd ;;
    *) name=$(basename "$tool") ;;
  esac
  echo "  building $name $version ($i of $count)" >&2
  CGO_ENABLED=${GO_CGO:-0} go build -trimpath -ldflags "$flags" -o "$partial/$name" "$tool"
done
source=$(go list -f '{{.Module.Dir}}' "${tools%%[[:space:]]*}")
for file in "$@"; do
  cp "$source/$file" "$partial/"
done
rm -rf "$out"
mv "$partial" "$out"
