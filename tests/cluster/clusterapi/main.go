// Runs Cluster API's MachineHealthCheck reconciler, and nothing else of Cluster API, against a real API server that is
// both management and workload cluster, by a clock that its input steps. It prints which machines it has marked for their
// owner to delete.
//
// The reconciler reads the machine's own clock, which nobody can set for it. So the clock stays, and the transition times
// of the Nodes that it is given are moved by as much as the stepped clock is apart from it: how long a condition has stood
// is what it would be, and every decision is the reconciler's.
package main

import (
	"context"
	"flag"
	"log"
	"maps"
	"os"
	"time"

	"github.com/go-logr/stdr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinehealthcheck"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nodevigil.test/stepped"
)

// The workload cluster's client: the same API server's, by the stepped clock.
type workload struct {
	client.Client
	now time.Time
}

func (w *workload) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if err := w.Client.Get(ctx, key, object, options...); err != nil {
		return err
	}
	if node, ok := object.(*corev1.Node); ok {
		apart := time.Since(w.now)
		for i := range node.Status.Conditions {
			at := &node.Status.Conditions[i].LastTransitionTime
			*at = metav1.NewTime(at.Add(apart))
		}
	}
	return nil
}

// The reconciler's way to the workload cluster. It watches nothing there: when to look is said by the steps.
type clusters struct {
	clustercache.ClusterCache
	workload *workload
}

func (c clusters) GetClient(context.Context, client.ObjectKey) (client.Client, error) {
	return c.workload, nil
}
func (c clusters) Watch(context.Context, client.ObjectKey, clustercache.Watcher) error { return nil }
func (c clusters) GetClusterSource(string, func(context.Context, client.Object) []ctrl.Request, ...clustercache.GetClusterSourceOption) source.Source {
	return source.Func(func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error { return nil })
}

// A manager that starts no controller: so the reconciler looks at the steps and at no other time.
type idle struct{ ctrl.Manager }

func (idle) Add(manager.Runnable) error { return nil }

// What a step prints.
type did struct {
	// Marked for their owner to delete.
	Deleted []string `json:"deleted"`
	// It said so by the condition RemediationAllowed.
	Blocked bool `json:"blocked"`
}

type stepper struct {
	cluster    ctrl.Manager
	reconciler *machinehealthcheck.Reconciler
	workload   *workload
	seen       map[string]string
	due        time.Time
}

// Like its own watches, it looks when a Node, a Machine or the check itself changed, and when it asked to be called again.
func (s *stepper) look(ctx context.Context, now time.Time) (any, error) {
	s.workload.now = now
	for {
		versions, err := stepped.CaughtUp(ctx, s.cluster,
			&corev1.NodeList{}, &clusterv1.MachineList{}, &clusterv1.MachineHealthCheckList{}, &clusterv1.ClusterList{})
		if err != nil {
			return nil, err
		}
		isDue := !s.due.IsZero() && !now.Before(s.due)
		if maps.Equal(versions, s.seen) && !isDue {
			return s.report(ctx)
		}
		s.seen, s.due = versions, time.Time{}
		checks := &clusterv1.MachineHealthCheckList{}
		if err := s.cluster.GetClient().List(ctx, checks); err != nil {
			return nil, err
		}
		for _, check := range checks.Items {
			result, err := s.reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&check)})
			if err != nil {
				return nil, err
			}
			// A due time within the step would be now for ever: by the real clock it takes that long.
			if result.RequeueAfter > 0 {
				s.due = now.Add(max(result.RequeueAfter, time.Second))
			}
		}
	}
}

func (s *stepper) report(ctx context.Context) (any, error) {
	now := did{Deleted: []string{}}
	machines := &clusterv1.MachineList{}
	if err := s.cluster.GetClient().List(ctx, machines); err != nil {
		return nil, err
	}
	for _, machine := range machines.Items {
		if conditions.IsFalse(&machine, clusterv1.MachineOwnerRemediatedCondition) {
			now.Deleted = append(now.Deleted, machine.Name)
		}
	}
	checks := &clusterv1.MachineHealthCheckList{}
	if err := s.cluster.GetClient().List(ctx, checks); err != nil {
		return nil, err
	}
	for _, check := range checks.Items {
		now.Blocked = now.Blocked || conditions.IsFalse(&check, clusterv1.MachineHealthCheckRemediationAllowedCondition)
	}
	return now, nil
}

func schemes() *runtime.Scheme {
	utilruntime.Must(clusterv1.AddToScheme(scheme.Scheme))
	return scheme.Scheme
}

func run(ctx context.Context) error {
	config, err := ctrl.GetConfig() // by --kubeconfig, a flag of controller-runtime's own
	if err != nil {
		return err
	}
	config.UserAgent = "cluster-api"
	config.QPS, config.Burst = 1000, 1000
	cluster, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:      schemes(),
		Metrics:     metricsserver.Options{BindAddress: "0"},
		BaseContext: func() context.Context { return ctx },
	})
	if err != nil {
		return err
	}
	seen := &workload{Client: cluster.GetClient()}
	reconciler := &machinehealthcheck.Reconciler{Client: cluster.GetClient(), ClusterCache: clusters{workload: seen}}
	if err := reconciler.SetupWithManager(ctx, idle{cluster}, controller.Options{}); err != nil {
		return err
	}
	steps := &stepper{cluster: cluster, reconciler: reconciler, workload: seen}
	return stepped.Run(ctx, cluster, os.Stdin, os.Stdout, steps.look)
}

func main() {
	flag.Parse()
	ctrl.SetLogger(stdr.New(log.Default()))
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
