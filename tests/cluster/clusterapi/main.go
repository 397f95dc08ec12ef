// Runs Cluster API's MachineHealthCheck controller for a cluster that manages itself.
package main

import (
	"log"

	"github.com/go-logr/stdr"
	"k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinehealthcheck"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func run() error {
	ctx := ctrl.SetupSignalHandler()
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	if err := clusterv1.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	if err := index.AddDefaultIndexes(ctx, manager); err != nil {
		return err
	}
	clusters, err := clustercache.SetupWithManager(ctx, manager, clustercache.Options{
		SecretClient: manager.GetClient(),
		Client:       clustercache.ClientOptions{UserAgent: "cluster-api"},
	}, controller.Options{})
	if err != nil {
		return err
	}
	reconciler := &machinehealthcheck.Reconciler{Client: manager.GetClient(), ClusterCache: clusters}
	if err := reconciler.SetupWithManager(ctx, manager, controller.Options{}); err != nil {
		return err
	}
	return manager.Start(ctx)
}

func main() {
	ctrl.SetLogger(stdr.New(log.Default()))
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
