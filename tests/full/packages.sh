#!/bin/sh
# Looks into the deb and the rpm in dist/: what they contain, what their scripts do, what lintian and rpmlint report.
#   tests/full/packages.sh VERSION
set -eu
cd "$(dirname "$0")/../.."
version=$1
deb=dist/nodevigil_$version-1_amd64.deb
rpm=dist/nodevigil-$version-1.x86_64.rpm
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "packages: $1" >&2
  exit 1
}

dpkg-deb --contents "$deb" | awk '{ print $1, substr($6, 2) }' >"$work/deb"
for path in bin/nodevigil lib/systemd/system/nodevigil.service lib/systemd/system/nodevigil-preflight.service \
  lib/systemd/system-preset/80-nodevigil.preset lib/tmpfiles.d/nodevigil.conf lib/nodevigil/config.d/00-defaults.toml \
  share/nodevigil/kubernetes/policy.yaml share/nodevigil/kubernetes/rbac.yaml share/nodevigil/kubernetes/taints.yaml \
  share/nodevigil/monitoring/alerts.yaml share/nodevigil/cloud-init/kubeadm-join.yaml share/doc/nodevigil/README.md \
  share/doc/nodevigil/copyright share/bash-completion/completions/nodevigil share/man/man1/nodevigil-check.1.gz \
  share/man/man5/nodevigil.toml.5.gz; do
  grep -q "^-rw.r-.r-. /usr/$path\$" "$work/deb" || fail "/usr/$path is not in the deb"
done
if grep -vE '^(drwxr-xr-x|-rw-r--r--|-rwxr-xr-x) /usr/' "$work/deb"; then fail "the deb has files outside /usr, or with such modes"; fi
if grep '^-rwx' "$work/deb" | grep -v ' /usr/bin/nodevigil$'; then fail "another file is executable"; fi
if grep -v '^#' packaging/config.d/00-defaults.toml | grep .; then fail "the packaged settings set something"; fi

# deb and rpm have different paths for these.
own='share/zsh|share/lintian|share/licenses|copyright|changelog'
grep -v '^d' "$work/deb" | cut -d' ' -f2 | grep -vE "$own" | sort >"$work/deb.files"
rpm -qp --qf '[%{FILEMODES:perms} %{FILENAMES}\n]' "$rpm" 2>/dev/null | grep -v '^d' | cut -d' ' -f2 | grep -vE "$own" | sort >"$work/rpm.files"
diff "$work/deb.files" "$work/rpm.files" || fail "the deb and the rpm contain different files"

dpkg-deb --extract "$deb" "$work/root"
cmp dist/nodevigil "$work/root/usr/bin/nodevigil" || fail "the deb has another binary"
[ "$("$work/root/usr/bin/nodevigil" --version)" = "nodevigil $version" ] || fail "the binary has another version"
zcat "$work/root/usr/share/doc/nodevigil/changelog.Debian.gz" | grep -q "^nodevigil ($version-1)" || fail "packaging/changelog.yaml lacks $version"
copyright=$work/root/usr/share/doc/nodevigil/copyright
for crate in kube tokio ring rustls; do
  grep -qE "^$crate [0-9.]+: [A-Za-z]" "$copyright" || fail "$crate is not in the copyright file"
done
if grep -E '^(proptest|insta|tempfile) ' "$copyright"; then fail "a crate that only tests use is in the copyright file"; fi
complete='COMP_WORDS=(nodevigil sta); COMP_CWORD=1; _nodevigil nodevigil sta nodevigil; echo "${COMPREPLY[@]}"'
[ "$(bash -c "source $work/root/usr/share/bash-completion/completions/nodevigil; $complete")" = status ] || fail "bash does not complete"

# The samples for cloud-init.
for file in cloud-init/*.yaml; do
  sed '/^## template: jinja$/d' "$file" >"$work/user-data"
  cloud-init schema --config-file "$work/user-data" >"$work/schema" 2>&1 || { cat "$work/schema"; fail "$file"; }
  sed 's/^write_files:$/&\n- 7/' "$work/user-data" >"$work/wrong"
  if cloud-init schema --config-file "$work/wrong" >/dev/null 2>&1; then fail "$file: cloud-init takes anything"; fi
done
# Without it `nodevigil bootstrap` reads the state only once.
if grep 'systemd-run.*bootstrap' cloud-init/*.yaml | grep -v -e --deadline; then fail "a sample runs nodevigil bootstrap without --deadline"; fi
printf '[intent]\ncloud_provider = "external"\n' >"$work/intent.toml"
dist/nodevigil config check "$work/intent.toml" >/dev/null || fail "the settings of the samples are refused"
code=0
dist/nodevigil check --phase=before --severity=warning --ignore=RT,KN tests/hosts/aks/rootfs >/dev/null || code=$?
[ "$code" -le 1 ] || fail "the check of image-bake.yaml ends with $code"

# With these arguments, of dpkg and rpm, the scripts do nothing. They would find no program.
for call in "postinst abort-upgrade" "postinst abort-remove" "prerm upgrade" "prerm failed-upgrade" "prerm 1" "postrm upgrade" "postrm abort-install" "postrm 1"; do
  # shellcheck disable=SC2086 # two words
  set -- $call
  trace=$(PATH=/nowhere /bin/sh -x "packaging/scripts/$1" "$2" 2>&1 | grep -v '^+ set -e$') || true
  [ "$trace" = "+ exit 0" ] || fail "$call: $trace"
done

lintian --allow-root --display-info --pedantic --fail-on error,warning,info,pedantic "$deb" || fail "lintian has findings"
# rpmlint unpacks by cpio names that begin with a slash: as root that would install the package on this machine.
mkdir "$work/shim"
printf '#!/bin/sh\nexec %s --no-absolute-filenames "$@"\n' "$(command -v cpio)" >"$work/shim/cpio"
chmod 755 "$work/shim/cpio"
PATH="$work/shim:$PATH" rpmlint --config packaging/rpmlint.toml "$rpm" >"$work/rpmlint" 2>&1 || { cat "$work/rpmlint"; fail "rpmlint has findings"; }
grep -q ' 0 errors, 0 warnings' "$work/rpmlint" || { cat "$work/rpmlint"; fail "rpmlint has findings"; }
echo "packages: good"
