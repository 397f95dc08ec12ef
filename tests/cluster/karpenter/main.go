// Runs the whole of Karpenter, with node repair, for machines that exist already: a NodeClaim is launched by taking the Node of the same
// name for its machine. `karpenter crds` prints the definitions of its types, and $REPAIR_POLICIES has the cloud provider's repair policies.
package main

import (
	"context"
	"encoding/json"
	"os"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kwokapis "sigs.k8s.io/karpenter/kwok/apis"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/apis"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
)

// Karpenter's own kwok provider, which takes each Node with such a provider ID for a machine of its own.
type cloud struct {
	*kwok.CloudProvider
	policies []cloudprovider.RepairPolicy
}

func (cloud) Create(_ context.Context, claim *v1.NodeClaim) (*v1.NodeClaim, error) {
	status := v1.NodeClaimStatus{ProviderID: "kwok://" + claim.Name}
	return &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: claim.Name}, Status: status}, nil
}

// A reboot is accepted, and nothing is rebooted.
func (cloud) Reboot(context.Context, *v1.NodeClaim, string) error { return nil }

func (c cloud) RepairPolicies() []cloudprovider.RepairPolicy { return c.policies }

func main() {
	if len(os.Args) == 2 && os.Args[1] == "crds" {
		list := map[string]any{"apiVersion": "v1", "kind": "List", "items": append(apis.CRDs, kwokapis.CRDs...)}
		lo.Must0(json.NewEncoder(os.Stdout).Encode(list))
		return
	}
	var policies []cloudprovider.RepairPolicy
	lo.Must0(json.Unmarshal([]byte(os.Getenv("REPAIR_POLICIES")), &policies))
	ctx, op := operator.NewOperator()
	provider := cloud{kwok.NewCloudProvider(ctx, op.GetClient(), lo.Must(kwok.ConstructInstanceTypes(ctx))), policies}
	matcher := lo.Must(health.NewRepairPolicyMatcher(ctx, provider))
	cluster := state.NewCluster(op.Clock, op.GetClient(), provider, state.WithRepairPolicyMatcher(matcher))
	op.WithControllers(ctx, controllers.NewControllers(
		ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, provider, provider, cluster, op.InstanceTypeStore, op.PredictionStore,
	)...).Start(ctx)
}
