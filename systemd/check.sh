#!/bin/sh
# Checks the unit files without installing them: syntax, the exposure gate, users and folders.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

fail() {
  echo "systemd/check.sh: $1" >&2
  exit 1
}

command -v systemd-analyze >/dev/null || fail "systemd-analyze is missing (Debian package systemd)"

# /usr/bin/nodevigil need not be installed here: the copies that are verified name /bin/true in its place.
# systemd-analyze exits 0 on an unknown key, so a line that names one of our files is what counts.
cp ./*.service ./*.socket ./*.slice ../packaging/monitoring/*.service ../packaging/monitoring/*.socket "$work"
sed -i 's,^ExecStart=/usr/bin/nodevigil ,ExecStart=/bin/true ,' "$work"/*.service
systemd-analyze verify --man=no "$work"/*.service "$work"/*.socket "$work"/*.slice >"$work/verify" 2>&1 || true
if grep nodevigil "$work/verify" >&2; then
  fail "systemd-analyze verify found something"
fi

# The agent must never delay, follow or stop the kubelet. The preflight goes before it, for ten seconds at most, and the
# kubelet starts whatever becomes of it: the one line that may name a kubelet is its Before=.
# (A path that is opened in a sandbox, if it is there, orders nothing.)
if grep -nE '^[A-Za-z]+=.*(kubelet|k3s|rke2|kubelite)' ./*.service ./*.socket ./*.slice | grep -vE '^./(nodevigil-preflight.service:[0-9]*:(Before|Description)=|nodevigil-(helper|plugin).service:[0-9]*:(ReadWrite|Inaccessible)Paths=-)' >&2; then
  fail "a unit refers to the kubelet"
fi
for line in Type=oneshot TimeoutStartSec=10 TimeoutStopSec=2 WantedBy=multi-user.target; do
  grep -qx "$line" nodevigil-preflight.service || fail "nodevigil-preflight.service lacks $line: it could hold the kubelet up"
done

# Ten times the exposure that systemd-analyze prints.
gate() {
  if ! systemd-analyze security --offline=yes --no-pager --threshold="$2" "$1" >"$work/security" 2>&1; then
    cat "$work/security" >&2
    fail "$1: exposure is above the gate of $2 (exposure times ten)"
  fi
  grep -o 'Overall exposure level for .*: [0-9.]*' "$work/security"
}
gate nodevigil.service 25
gate nodevigil-helper.service 20
gate nodevigil-plugin.service 25
gate nodevigil-preflight.service 20
gate ../packaging/monitoring/nodevigil-metrics.service 10

# The user, then the folders that belong to it, in an empty root. Only root may give a folder away.
mkdir -p "$work/root/etc"
systemd-sysusers --root="$work/root" "$PWD/nodevigil.sysusers" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "nodevigil.sysusers"; }
if [ "$(id -u)" = 0 ]; then
  systemd-tmpfiles --root="$work/root" --create "$PWD/nodevigil.tmpfiles" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "nodevigil.tmpfiles"; }
  uid=$(grep '^nodevigil:' "$work/root/etc/passwd" | cut -d: -f3)
  [ "$(stat -c %u "$work/root/var/lib/nodevigil")" = "$uid" ] || fail "/var/lib/nodevigil is not the agent's"
fi
