// Package stepped has a real controller live through an hour of a clock that a test steps: each line of the input is a
// time, and each line of the output is what the controller did until then. What it reads is a real API server's.
package stepped

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Look has the controller do what is due at a time, and says what it has done so far.
type Look func(ctx context.Context, now time.Time) (any, error)

// Run starts the manager's cache, and looks at each time that the input has.
func Run(ctx context.Context, cluster manager.Manager, in io.Reader, out io.Writer, look Look) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- cluster.Start(ctx) }()
	if !cluster.GetCache().WaitForCacheSync(ctx) {
		return fmt.Errorf("the cache did not start: %w", <-ended)
	}
	answers := json.NewEncoder(out)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		now, err := time.Parse(time.RFC3339, lines.Text())
		if err != nil {
			return err
		}
		did, err := look(ctx, now)
		if err != nil {
			return err
		}
		if err := answers.Encode(did); err != nil {
			return err
		}
	}
	return lines.Err()
}

// CaughtUp waits until the manager's cache holds what the API server has of these kinds, as a controller's that has had
// a moment does. It returns the version of each object.
func CaughtUp(ctx context.Context, cluster manager.Manager, kinds ...client.ObjectList) (map[string]string, error) {
	versions := map[string]string{}
	for _, kind := range kinds {
		gvk, err := apiutil.GVKForObject(kind, cluster.GetScheme())
		if err != nil {
			return nil, err
		}
		err = wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			live := &metav1.PartialObjectMetadataList{}
			live.SetGroupVersionKind(gvk)
			if err := cluster.GetAPIReader().List(ctx, live); err != nil {
				return false, err
			}
			cached := kind.DeepCopyObject().(client.ObjectList)
			if err := cluster.GetClient().List(ctx, cached, client.UnsafeDisableDeepCopy); err != nil {
				return false, err
			}
			known := map[string]string{}
			err := meta.EachListItem(cached, func(o runtime.Object) error {
				known[key(gvk.Kind, o.(client.Object))] = o.(client.Object).GetResourceVersion()
				return nil
			})
			if err != nil || len(known) != len(live.Items) {
				return false, err
			}
			for i := range live.Items {
				name := key(gvk.Kind, &live.Items[i])
				if known[name] != live.Items[i].ResourceVersion {
					return false, nil
				}
				versions[name] = known[name]
			}
			return true, nil
		})
		if err != nil {
			return nil, fmt.Errorf("waiting for the cache of %s: %w", gvk.Kind, err)
		}
	}
	return versions, nil
}

func key(kind string, o client.Object) string {
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}
