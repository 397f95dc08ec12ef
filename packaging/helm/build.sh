#!/bin/sh
# Checks the Helm chart, with the default values, with every option and with the usual values of values/, and writes to dist/
#   nodevigil-VERSION.tgz       the chart
#   nodevigil.yaml              the same for kubectl apply -f, without what helm uninstall runs
#   chart/every-option.yaml     what every-option.yaml makes of it, for a test
# build.sh HELM                 SOURCE_DATE_EPOCH: the time of the files
set -eu
cd "$(dirname "$0")"
helm=$1
dist=../../dist
chart=$dist/chart/nodevigil
export HELM_NAMESPACE=kube-system
rm -rf "$dist/chart"
mkdir -p "$dist/chart"
# The files of packaging/kubernetes and packaging/monitoring are links in the chart, and Helm would report each.
cp -RL nodevigil "$dist/chart/"
find "$chart" -exec touch --date="@$SOURCE_DATE_EPOCH" {} +

fail() {
  echo "$*" >&2
  exit 1
}

# Prints KIND/NAME of each object in the file, and fails if one lacks a label.
objects() {
  awk -v file="$1" '
    function end() {
      if (kind != "") print kind "/" name
      if (kind != "" && labels < 5) { print file ": " kind "/" name " lacks a recommended label" >"/dev/stderr"; failed = 1 }
      kind = name = ""; labels = 0
    }
    /^---/ { end() }
    /^kind: / { kind = $2 }
    /^  name: / && name == "" { name = $2 }
    /^    (app\.kubernetes\.io\/(name|instance|version|managed-by)|helm\.sh\/chart): ./ { labels++ }
    END { end(); exit failed }
  ' "$1"
}

"$helm" lint --strict --quiet "$chart"
"$helm" lint --strict --quiet "$chart" --values every-option.yaml
"$helm" template nodevigil "$chart" --values every-option.yaml >"$dist/chart/every-option.yaml"
objects "$dist/chart/every-option.yaml" >/dev/null
# Each file says in comments what is rendered: objects, and lines that there are or are not.
for values in values/*.yaml; do
  rendered=$dist/chart/$(basename "$values")
  "$helm" lint --strict --quiet "$chart" --values "$values"
  "$helm" template nodevigil "$chart" --values "$values" >"$rendered"
  found=$(objects "$rendered")
  for wanted in $(sed -n 's/^# objects: //p' "$values"); do
    case "$wanted" in
      none) [ -z "$found" ] || fail "$values: it renders $found" ;;
      *) echo "$found" | grep -qxF "$wanted" || fail "$values: there is no $wanted" ;;
    esac
  done
  sed -n 's/^# has: //p' "$values" | while read -r line; do
    grep -qF -- "$line" "$rendered" || fail "$values: there is no line: $line"
  done
  sed -n 's/^# lacks: //p' "$values" | while read -r text; do
    ! grep -qF -- "$text" "$rendered" || fail "$values: there is $text"
  done
done
# The policies come first: without them the roles reach every Node. Helm manages nothing of it.
for part in "--show-only templates/policy.yaml" "--set policy=false"; do
  # shellcheck disable=SC2086
  "$helm" template nodevigil "$chart" --no-hooks $part | sed '/^ *helm\.sh\/chart:/d; /^ *app\.kubernetes\.io\/managed-by:/d'
done >"$dist/nodevigil.yaml"
for refused in "--namespace=default" "--set=noSuchValue=1" "--set=taints=true,policy=false" "--set=taints=true,rbac=false" "--set=podMonitor.listen=:20258" \
  "--set=podMonitor.listen=localhost:20258" "--set=maxUnavailable=150%" "--set=extraEnv[0].value=1" "--set=checkTypes={Ready}"; do
  ! "$helm" template nodevigil "$chart" "$refused" >/dev/null 2>&1 || fail "the chart takes $refused"
done
"$helm" package "$chart" --destination "$dist" >/dev/null
