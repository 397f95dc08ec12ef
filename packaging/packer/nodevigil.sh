#!/bin/sh
# Puts nodevigil into an image: for Packer's shell provisioner, a chroot, or anything else that runs as root in the image.
#   NODEVIGIL_DEB=/tmp/nodevigil_VERSION_amd64.deb nodevigil.sh
# NODEVIGIL_UNIT: the unit that starts the kubelet (kubelet.service). NODEVIGIL_KUBEADM: whether kubeadm writes the kubelet's flags, yes or no
# (yes for kubelet.service).
# Starts nothing. Exit code 1: `nodevigil check` has found an error in the image. An image without a kubelet is not checked.
set -eu

unit=${NODEVIGIL_UNIT:-kubelet.service}
case "$unit" in kubelet.service) kubeadm=yes ;; *) kubeadm=no ;; esac
units=/etc/systemd/system

DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$NODEVIGIL_DEB"
systemctl enable nodevigil.service

# The check runs before each start of the kubelet, once kubeadm has written its part. With Wants=, a kubelet with a mistake starts
# nevertheless.
mkdir -p "$units/$unit.d" "$units/nodevigil-preflight.service.d"
printf '[Unit]\nWants=nodevigil-preflight.service\nAfter=nodevigil-preflight.service\n' >"$units/$unit.d/05-nodevigil.conf"
if [ "${NODEVIGIL_KUBEADM:-$kubeadm}" = yes ]; then
  printf '[Unit]\nConditionPathExists=/var/lib/kubelet/kubeadm-flags.env\n' >"$units/nodevigil-preflight.service.d/10-kubeadm.conf"
fi

# Remove what belongs to a single node. Each node creates its own machine id at its first boot. Without a machine id, the presets of some
# distributions would disable the units again, so a preset with a lower number enables the agent.
rm -rf /etc/nodevigil/kubeconfig /var/lib/nodevigil/*
mkdir -p /etc/systemd/system-preset
echo 'enable nodevigil.service' >/etc/systemd/system-preset/10-nodevigil.preset

# The nodes check the rules about the running machine (RT: container runtime and cgroups, KN: kernel, swap and clock).
code=0
nodevigil check --phase=before --severity=warning --ignore=RT,KN || code=$?
# 2: it could not check, which is right only if no kubelet is in the image yet.
if [ "$code" -ne 2 ] || [ -n "$(find /etc/systemd/system /usr/lib/systemd/system /lib/systemd/system -name "$unit" 2>/dev/null)" ]; then
  exit "$code"
fi
