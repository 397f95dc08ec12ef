// Runs the node health controller of Karpenter's core, and nothing else of Karpenter, against a real API server: with
// the repair policies that its flags say, and a cloud in which nothing can be made or unmade. By the machine's clock, or by
// one that its input steps.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/go-logr/stdr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/karpenter/pkg/apis"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

var (
	policies  []cloudprovider.RepairPolicy
	isStepped = flag.Bool("stepped", false, "live by the times on standard input")
)

func init() {
	flag.Func("policy", "TYPE=STATUS=TOLERATION of a repair policy; may be repeated", func(value string) error {
		parts := strings.Split(value, "=")
		if len(parts) != 3 {
			return errors.New("TYPE=STATUS=TOLERATION")
		}
		toleration, err := time.ParseDuration(parts[2])
		policies = append(policies, cloudprovider.RepairPolicy{
			ConditionType:      corev1.NodeConditionType(parts[0]),
			ConditionStatus:    corev1.ConditionStatus(parts[1]),
			TolerationDuration: toleration,
		})
		return err
	})
}

// Nodes are managed if they carry the label nodevigil.test/testclass.
type nodeClass struct {
	metav1.TypeMeta
	metav1.ObjectMeta
}

func (n *nodeClass) DeepCopyObject() runtime.Object    { copied := *n; return &copied }
func (n *nodeClass) GetConditions() []status.Condition { return nil }
func (n *nodeClass) SetConditions([]status.Condition)  {}
func (n *nodeClass) StatusConditions(...status.ForOption) status.ConditionSet {
	return status.ConditionSet{}
}

func init() {
	scheme.Scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "nodevigil.test", Version: "v1", Kind: "TestClass"}, &nodeClass{})
}

type cloud struct{}

var errNoCloud = errors.New("there is no cloud here")

func (cloud) Create(context.Context, *v1.NodeClaim) (*v1.NodeClaim, error) { return nil, errNoCloud }
func (cloud) Delete(context.Context, *v1.NodeClaim) error                  { return errNoCloud }
func (cloud) Get(context.Context, string) (*v1.NodeClaim, error)           { return nil, errNoCloud }
func (cloud) List(context.Context) ([]*v1.NodeClaim, error)                { return nil, errNoCloud }
func (cloud) GetInstanceTypes(context.Context, *v1.NodePool) ([]*cloudprovider.InstanceType, error) {
	return nil, errNoCloud
}
func (cloud) IsDrifted(context.Context, *v1.NodeClaim) (cloudprovider.DriftReason, error) {
	return "", nil
}
func (cloud) RepairPolicies() []cloudprovider.RepairPolicy { return policies }
func (cloud) Name() string                                 { return "none" }
func (cloud) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&nodeClass{}}
}

// Installs Karpenter's own definitions and waits until they are served.
func install(ctx context.Context, config *rest.Config) error {
	schemes := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(schemes); err != nil {
		return err
	}
	api, err := client.New(config, client.Options{Scheme: schemes})
	if err != nil {
		return err
	}
	for _, crd := range apis.CRDs {
		if err := api.Create(ctx, crd); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		name := client.ObjectKeyFromObject(crd)
		err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			found := &apiextensionsv1.CustomResourceDefinition{}
			if err := api.Get(ctx, name, found); err != nil {
				return false, err
			}
			for _, c := range found.Status.Conditions {
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					return true, nil
				}
			}
			return false, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func index(ctx context.Context, manager ctrl.Manager) error {
	fields := []struct {
		object client.Object
		name   string
		value  func(client.Object) string
	}{
		{&corev1.Pod{}, "spec.nodeName", func(o client.Object) string { return o.(*corev1.Pod).Spec.NodeName }},
		{&corev1.Node{}, "spec.providerID", func(o client.Object) string { return o.(*corev1.Node).Spec.ProviderID }},
		{&v1.NodeClaim{}, "status.providerID", func(o client.Object) string { return o.(*v1.NodeClaim).Status.ProviderID }},
	}
	for _, field := range fields {
		values := func(o client.Object) []string { return []string{field.value(o)} }
		if err := manager.GetFieldIndexer().IndexField(ctx, field.object, field.name, values); err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context) error {
	config, err := ctrl.GetConfig() // by --kubeconfig, a flag of controller-runtime's own
	if err != nil {
		return err
	}
	config.UserAgent = "karpenter"
	if err := install(ctx, config); err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:      scheme.Scheme,
		Metrics:     metricsserver.Options{BindAddress: "0"},
		BaseContext: func() context.Context { return ctx },
	})
	if err != nil {
		return err
	}
	if err := index(ctx, manager); err != nil {
		return err
	}
	recorder := events.NewRecorder(manager.GetEventRecorderFor("karpenter")) //nolint:staticcheck // as Karpenter itself
	if *isStepped {
		return step(ctx, manager, recorder)
	}
	controller := health.NewController(manager.GetClient(), cloud{}, clock.RealClock{}, recorder)
	if err := controller.Register(ctx, manager); err != nil {
		return err
	}
	return manager.Start(ctx)
}

func main() {
	flag.Parse()
	ctrl.SetLogger(stdr.New(log.Default()))
	// What Karpenter's operator reads from its flags; the controller counts its workers by it.
	ctx := options.ToContext(ctrl.SetupSignalHandler(), &options.Options{CPURequests: 1000})
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}
