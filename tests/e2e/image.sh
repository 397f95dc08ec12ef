#!/bin/sh
# Makes the image of a guest with the Debian suite $1 for the architecture $2 in the directory $3: kernel, initial (an initial file
# system) and disk.
set -eu
suite=$1 architecture=$2 out=$3
rm -rf "$out.partial"
mkdir -p "$out.partial"
cd "$out.partial"
packages=systemd,systemd-sysv,dbus,udev,kmod,procps,iproute2,nftables,e2fsprogs,dmsetup,python3-minimal,containerd,runc,containernetworking-plugins
# Unpacked and not installed: no program of another architecture can run here, and the kernel's package would make an initial file
# system, which takes long and starts slowly.
debootstrap --foreign --variant=minbase --arch="$architecture" --include="$packages,busybox-static,linux-image-cloud-$architecture" \
  "$suite" root http://deb.debian.org/debian >debootstrap.log 2>&1 || {
  tail debootstrap.log >&2
  exit 1
}
for package in root/var/cache/apt/archives/*.deb; do dpkg-deb --fsys-tarfile "$package" | tar -x -C root --keep-directory-symlink; done
# What the packages' scripts would do.
cp root/usr/share/base-passwd/passwd.master root/etc/passwd
cp root/usr/share/base-passwd/group.master root/etc/group
systemd-sysusers --root="$PWD/root" 2>sysusers.log || true
grep -q ^messagebus: root/etc/passwd || {
  echo messagebus:x:100:107::/nonexistent:/usr/sbin/nologin >>root/etc/passwd
  echo messagebus:x:107: >>root/etc/group
}
ln -sf mawk root/usr/bin/awk
rm -rf root/var/run root/var/lock && ln -s /run root/var/run && ln -s /run/lock root/var/lock
# In a container debootstrap makes it a link to the container's own.
rm -rf root/proc && mkdir root/proc
kernel=$(ls root/lib/modules)
depmod --basedir root "$kernel"
if [ -f "root/lib/modules/$kernel/vmlinuz" ]; then cp "root/lib/modules/$kernel/vmlinuz" kernel; else cp "root/boot/vmlinuz-$kernel" kernel; fi

# What a guest does not need, and what would take most of the time of its boot.
units="systemd-udevd systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-udevd-varlink.socket systemd-udev-trigger systemd-udev-settle
  systemd-udev-load-credentials modprobe@ systemd-random-seed systemd-boot-random-seed systemd-logind systemd-logind-varlink.socket systemd-sysusers
  ldconfig systemd-modules-load systemd-tmpfiles-setup-dev systemd-tmpfiles-setup-dev-early kmod-static-nodes systemd-journal-catalog-update
  systemd-binfmt systemd-remount-fs systemd-update-done systemd-hwdb-update systemd-pstore dev-hugepages.mount dev-mqueue.mount
  sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.automount
  serial-getty@ getty@ getty.target console-getty systemd-user-sessions e2scrub_reap systemd-update-utmp systemd-timesyncd
  systemd-hostnamed.socket systemd-ask-password-wall.path systemd-ask-password-console.path apt-daily.timer apt-daily-upgrade.timer
  dpkg-db-backup.timer e2scrub_all.timer fstrim.timer systemd-tmpfiles-clean.timer systemd-machine-id-commit systemd-firstboot
  systemd-network-generator systemd-journal-flush"
for unit in $units; do
  case $unit in *.*) ;; *) unit=$unit.service ;; esac
  ln -sf /dev/null "root/etc/systemd/system/$unit"
done
rm -rf root/boot/* root/debootstrap root/usr/share/doc root/usr/share/man root/usr/share/locale root/var/cache/apt root/var/lib/apt/lists
touch root/etc/.updated root/var/.updated

# The initial file system: drivers, the disk, and the files of the node, which are on another disk and unpacked at the first boot.
mkdir -p initial.d/bin initial.d/proc initial.d/dev initial.d/root initial.d/modules
cp root/bin/busybox initial.d/bin/
for module in virtio_pci virtio_blk virtio_net virtio_console ext4 loop dm-mod; do
  modprobe --dirname root --set-version "$kernel" --show-depends "$module"
done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r path; do
  name=$(basename "$path" .xz)
  case $path in *.xz) busybox unxz <"$path" ;; *) cat "$path" ;; esac >"initial.d/modules/$name"
  echo "insmod /modules/$name" >>initial.d/modules/insert
done
cat >initial.d/init <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
. /modules/insert
mount -o rw /dev/vda /root
if [ ! -e /root/etc/unpacked ]; then
  tar -xf /dev/vdb -C /root
  touch /root/etc/unpacked
fi
ifconfig lo up
ifconfig eth0 10.99.0.2 netmask 255.255.255.0 up
route add default gw 10.99.0.1
exec switch_root /root /lib/systemd/systemd
INIT
chmod 755 initial.d/init
(cd initial.d && find . | busybox cpio -o -H newc 2>/dev/null) >initial

truncate -s 3G disk
PATH="$PATH:/usr/sbin:/sbin" mkfs.ext4 -q -d root disk
rm -rf root initial.d
mv "$out.partial" "$out"
