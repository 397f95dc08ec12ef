#!/bin/sh
# Makes the guest's image in the folder $1: Debian's cloud kernel with the drivers it needs, and a root file system from this
# machine's own packages: systemd, dbus and what they need. No package is installed.
set -eu
out=$1
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$(dirname "$out")"
work=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
PATH="$PATH:/usr/sbin:/sbin"

fail() {
  echo "tests/vm/image.sh: $1" >&2
  exit 1
}

# 6.1: the newest that Debian 12's emulator runs; with 6.12 it crashed.
fetch() {
  kernel=$(apt-cache pkgnames linux-image-6.1 | grep -xE 'linux-image-6\.1\.[0-9.-]+-cloud-amd64' | sort -V | tail -1)
  [ -n "$kernel" ] && (cd "$work" && apt-get download -qq "$kernel" >/dev/null 2>&1)
}
fetch || { apt-get update -qq && fetch; } || fail "apt-get download finds no linux-image-6.1.*-cloud-amd64"
mkdir "$work/kernel" "$work/image" "$work/image/modules"
dpkg-deb -x "$work"/linux-image-*.deb "$work/kernel"
cp "$work"/kernel/boot/vmlinuz-* "$work/image/vmlinuz"
modules=$(echo "$work"/kernel/lib/modules/*/kernel)
for module in drivers/virtio/virtio_ring drivers/virtio/virtio drivers/virtio/virtio_pci_legacy_dev drivers/virtio/virtio_pci_modern_dev \
  drivers/virtio/virtio_pci drivers/block/virtio_blk net/core/failover drivers/net/net_failover drivers/net/virtio_net \
  mm/zsmalloc lib/lzo/lzo_compress lib/lzo/lzo_decompress crypto/lzo-rle drivers/block/zram/zram \
  drivers/md/dm-mod; do
  # What this kernel has built in is no file.
  [ -f "$modules/$module.ko" ] || continue
  cp "$modules/$module.ko" "$work/image/modules/"
  echo "${module##*/}.ko" >>"$work/image/modules/order"
done

# Their files as they are installed here, under one /usr.
root="$work/root"
mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" "$root/usr/lib64"
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
for folder in proc sys dev run tmp mnt var/tmp var/lib etc root; do mkdir -p "$root/$folder"; done
apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances \
  systemd dbus util-linux coreutils dash grep sed dmsetup e2fsprogs |
  grep -E '^[a-z0-9]' | sort -u | grep -vE '^(debconf|perl-base|cdebconf|init-system-helpers|dpkg|tar|bash)' >"$work/packages"
while read -r package; do
  dpkg -L "$package" 2>/dev/null || true
done <"$work/packages" |
  grep -vE '^/(usr/share/(doc|man|locale|info|lintian|bash-completion|zsh|polkit-1|pkgconfig|bug)|usr/lib/udev|lib/udev|etc/(cron|apparmor|init))' |
  sed -E 's,^/(bin|sbin|lib|lib64)/,/usr/\1/,' | sort -u |
  while read -r path; do
    if [ -L "$path" ] || [ -f "$path" ]; then echo ".$path"; fi
  done >"$work/files"
tar -C / --no-recursion -cf - -T "$work/files" | tar -C "$root" -xf -
cp "$(command -v busybox)" "$root/usr/bin/busybox"
cp /etc/passwd /etc/group "$root/etc/"
rm -rf "$root/etc/systemd/system" && mkdir -p "$root/etc/systemd/system"
install -D -m 644 "$here/../../systemd/nodevigil.sysusers" "$root/usr/lib/sysusers.d/nodevigil.conf"
install -D -m 644 "$here/../../systemd/nodevigil.tmpfiles" "$root/usr/lib/tmpfiles.d/nodevigil.conf"
systemd-sysusers --root="$root" nodevigil.conf >/dev/null 2>&1
systemd-tmpfiles --root="$root" --create --exclude-prefix=/run nodevigil.conf
cp "$root/etc/group" "$work/image/group"
ldconfig -r "$root"

# What the stand-in kubelet executes, and what a pod reads: bytes that no disk can leave out.
head -c 104857600 /dev/urandom >"$root/usr/lib/kubelet-text"
head -c 100663296 /dev/urandom >"$root/var/lib/pages"
truncate -s 1200M "$work/image/root"
mke2fs -q -t ext4 -E root_owner=0:0 -d "$root" "$work/image/root"
truncate -s 512M "$work/image/swap"
chmod 600 "$work/image/swap"
mkswap -q "$work/image/swap" 2>/dev/null || mkswap "$work/image/swap" >/dev/null
mv "$work/image" "$out"
