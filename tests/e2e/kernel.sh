#!/bin/sh
# Unpacks Debian's kernel for virtual machines into the directory $1; installed, it would become this machine's own.
set -eu
work="$1.partial"
rm -rf "$work"
mkdir -p "$work"
cd "$work"
fetch() {
  package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: //p') && [ -n "$package" ] && apt-get download -qq "$package"
}
fetch 2>/dev/null || { apt-get update -qq && fetch; } || {
  echo "apt-get downloads no linux-image-cloud-amd64: put a kernel's boot/ and lib/modules/ (not compressed) into $1" >&2
  exit 1
}
dpkg-deb -x linux-image-*.deb .
rm -- *.deb
mv "$work" "$1"
