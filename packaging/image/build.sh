#!/bin/sh
# Writes dist/nodevigil-image.tar: an OCI layout with an index of one image for each architecture. An image holds dist/ARCH/nodevigil
# and the licences of what is linked into it, and no certificates: the agent trusts the authority of its kubeconfig or of its pod, and
# no other. No daemon is needed, and the same files give the same bytes.
#   build.sh CRANE VERSION ARCH...          SOURCE_DATE_EPOCH: the time of the files
set -eu
cd "$(dirname "$0")/../.."
crane=$1 version=$2
shift 2
work=$(mktemp -d)
registry=
trap 'rm -rf "$work"; [ -z "$registry" ] || kill "$registry"' EXIT

archive() {
  tar --create --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --file="$1" --directory="$2" .
}

crane() {
  "$crane" "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
}

# crane keeps images in registries alone: this one is in memory. The port is the kernel's choice.
"$crane" registry serve --address 127.0.0.1:0 2>"$work/registry" &
registry=$!
until port=$(sed -n 's/.*serving on port //p' "$work/registry") && [ -n "$port" ]; do
  kill -0 "$registry"
  sleep 0.1
done
image=127.0.0.1:$port/nodevigil

# Each architecture in the arguments is replaced by the option with which the index takes its image.
for arch in "$@"; do
  mkdir -p "$work/$arch/usr/bin" "$work/$arch/usr/share/doc/nodevigil"
  chmod -R u=rwX,go=rX "$work/$arch"
  install -m 755 "dist/$arch/nodevigil" "$work/$arch/usr/bin/nodevigil"
  install -m 644 "dist/$arch/copyright" LICENSE "$work/$arch/usr/share/doc/nodevigil"
  archive "$work/$arch.tar" "$work/$arch"
  crane append --oci-empty-base --new_layer "$work/$arch.tar" --new_tag "$image:$arch"
  crane mutate "$image:$arch" --tag "$image:$arch" --set-platform "linux/$arch" --entrypoint /usr/bin/nodevigil --cmd run \
    --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --label org.opencontainers.image.source=https://github.com/nodevigil/nodevigil \
    --label org.opencontainers.image.licenses=Apache-2.0 --label "org.opencontainers.image.version=$version"
  set -- "$@" --manifest "$image:$arch"
  shift
done
crane index append "$@" --tag "$image:$version"
crane validate --remote "$image:$version"
crane pull --format=oci --annotate-ref "$image:$version" "$work/layout"
# The name under which a container runtime keeps it.
sed -i "s,$image,ghcr.io/nodevigil/nodevigil," "$work/layout/index.json"
archive "$work/layout.tar" "$work/layout"
mv "$work/layout.tar" dist/nodevigil-image.tar
echo "dist/nodevigil-image.tar: $(stat -c %s dist/nodevigil-image.tar) bytes, $(sed -n 's/.*"digest": "\(.*\)".*/\1/p' "$work/layout/index.json")"
