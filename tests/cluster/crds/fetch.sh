#!/bin/sh
# Copies the CustomResourceDefinitions of the modules in this folder's go.mod into OUT: fetch.sh OUT
# go.sum holds the modules to what was read here; Go's caches are the caller's, as for ../build.sh.
set -eu
out=$1
cd "$(dirname "$0")"
partial="$out.partial"
rm -rf "$partial"
mkdir -p "$partial"
take() {
  folder=$(go mod download -json "$1@$(go list -m -f '{{.Version}}' "$1")" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  cp "$folder/$2" "$partial/"
}
take github.com/medik8s/node-healthcheck-operator config/crd/bases/remediation.medik8s.io_nodehealthchecks.yaml
# Besides the samples' own types those of the controllers that are run over them.
for kind in machinehealthchecks machines clusters; do
  take sigs.k8s.io/cluster-api core/config/crd/bases/cluster.x-k8s.io_$kind.yaml
done
for kind in nodepools nodeclaims nodeoverlays; do
  take sigs.k8s.io/karpenter pkg/apis/crds/karpenter.sh_$kind.yaml
done
for kind in podmonitors prometheusrules; do
  take github.com/prometheus-operator/prometheus-operator example/prometheus-operator-crd/monitoring.coreos.com_$kind.yaml
done
take sigs.k8s.io/karpenter kwok/apis/crds/karpenter.kwok.sh_kwoknodeclasses.yaml
chmod -R u+w "$partial"
rm -rf "$out"
mv "$partial" "$out"
