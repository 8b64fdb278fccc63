package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// The namespaces of cases.yaml: of measured pods and of pods to warm up.
const (
	measured = "measured-0"
	warm     = "warm-0"
)

// The number of offers. In governed cases one offer governs the pods of each namespace.
const offers = 100

// The number of servers that governed pods must be near.
const servedBy = 3

var kinds = []string{"constraintpolicies", "constraintpolicyoffers", "constraintpolicybindings"}

// cluster creates objects of any kind.
type cluster struct {
	context.Context
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func newCluster(tCtx ktesting.TContext) cluster {
	cached := memory.NewMemCacheClient(tCtx.Client().Discovery())
	return cluster{tCtx, tCtx.Dynamic(), restmapper.NewDeferredDiscoveryRESTMapper(cached)}
}

// install creates Tautline's CRDs, the providers' Services, the table of round-trip
// times, policies, offers, and the servers that pods must be near.
func install(tCtx ktesting.TContext, root string, nodes *v1.NodeList, of Case) error {
	c := newCluster(tCtx)
	for _, kind := range kinds {
		if err := c.file(filepath.Join(root, "deploy/crds", kind+".yaml"), ""); err != nil {
			return err
		}
	}
	if err := c.file("cluster/providers.yaml", ""); err != nil {
		return err
	}
	for _, namespace := range []string{warm, measured} {
		if err := c.file("cluster/policies.yaml", namespace); err != nil {
			return err
		}
		if err := c.create(offer("clients", governing(of.Governed), "server", of.policies()), namespace); err != nil {
			return err
		}
	}
	for i := range offers - 2 {
		name := fmt.Sprintf("service-%d", i)
		if err := c.create(offer(name, name, name+"-db", of.policies()), measured); err != nil {
			return err
		}
	}
	// The round-trip times of cluster/providers.yaml are from this zone.
	made := 0
	for _, node := range nodes.Items {
		if node.Labels[v1.LabelTopologyZone] != "zone-0" || made == servedBy {
			continue
		}
		for _, namespace := range []string{warm, measured} {
			if err := c.create(placed(fmt.Sprintf("server-%d", made), node.Name), namespace); err != nil {
				return err
			}
		}
		made++
	}
	return nil
}

// governing is the label that the offer selects; no pod has it in ungoverned cases.
func governing(governed bool) string {
	if governed {
		return podApp
	}
	return "nobody"
}

// offer requires pods of one application to be near another's by these policies.
func offer(name, app, peer string, policies []string) *unstructured.Unstructured {
	named := make([]any, len(policies))
	for i, policy := range policies {
		named[i] = policy
	}
	target := func(role, app string) any {
		return map[string]any{
			"name":          role,
			"kind":          "Pod",
			"labelSelector": map[string]any{"matchLabels": map[string]any{"app": app}},
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "constraint.ciena.com/v1alpha1",
		"kind":       "ConstraintPolicyOffer",
		"metadata":   map[string]any{"name": name},
		"spec": map[string]any{
			"targets":             []any{target("client", app), target("server", peer)},
			"policies":            named,
			"providerUnavailable": "Reject",
		},
	}}
}

// placed is a server that is bound to a node.
func placed(name, node string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Pod",
		"metadata":   map[string]any{"name": name, "labels": map[string]any{"app": "server"}},
		"spec": map[string]any{
			"nodeName":   node,
			"containers": []any{map[string]any{"name": "main", "image": "registry.k8s.io/pause:3.10.2"}},
		},
	}}
}

// file creates all objects of a file.
func (c cluster) file(path, namespace string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	decoder := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if len(object.Object) == 0 {
			continue
		}
		if err := c.create(object, namespace); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
}

// create creates an object. It retries, as a new CRD is not served at once.
func (c cluster) create(object *unstructured.Unstructured, namespace string) error {
	kind := object.GroupVersionKind()
	var last error
	err := wait.PollUntilContextTimeout(c, 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if last = err; err != nil {
			if meta.IsNoMatchError(err) {
				c.mapper.Reset()
				err = nil
			}
			return false, err
		}
		resource := dynamic.ResourceInterface(c.client.Resource(mapping.Resource))
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			if own := object.GetNamespace(); own != "" {
				namespace = own
			}
			resource = c.client.Resource(mapping.Resource).Namespace(namespace)
		}
		_, last = resource.Create(c, object, metav1.CreateOptions{})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind.Kind, object.GetName(), errors.Join(err, last))
	}
	return nil
}
