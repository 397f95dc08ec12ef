#!/bin/sh
# Checks the Helm chart, with the default values and with every option, and writes to dist/
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

"$helm" lint --strict --quiet "$chart"
"$helm" lint --strict --quiet "$chart" --values every-option.yaml
# The policies come first: without them the roles reach every Node.
cat ../kubernetes/policy.yaml >"$dist/nodevigil.yaml"
"$helm" template nodevigil "$chart" --no-hooks --set policy=false >>"$dist/nodevigil.yaml"
"$helm" template nodevigil "$chart" --values every-option.yaml >"$dist/chart/every-option.yaml"
for refused in "--namespace=default" "--set=noSuchValue=1" "--set=taints=true,policy=false"; do
  if "$helm" template nodevigil "$chart" "$refused" >/dev/null 2>&1; then
    echo "the chart takes $refused" >&2
    exit 1
  fi
done
"$helm" package "$chart" --destination "$dist" >/dev/null
