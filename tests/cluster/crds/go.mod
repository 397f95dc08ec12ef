// The modules whose CustomResourceDefinitions the samples are held to (fetch.sh); nothing of them is built.
module nodevigil.test/crds

go 1.26.6

require (
	github.com/medik8s/node-healthcheck-operator v0.12.0
	github.com/prometheus-operator/prometheus-operator v0.85.0
	sigs.k8s.io/cluster-api v1.14.0
	sigs.k8s.io/karpenter v1.14.1
)
