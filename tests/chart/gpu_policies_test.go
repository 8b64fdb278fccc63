package chart

import (
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	record       = "tautline.io/gpu-devices"
	devicePlugin = "gpu: {enabled: true, delivery: device-plugin}\n"
)

// The record of a pod's cards is written by pods/binding only.
func TestRecordOfCardsIsTheSchedulers(t *testing.T) {
	plane := startGPUPlane(t, devicePlugin)
	pods := plane.clients.CoreV1().Pods("default")
	template := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"a": "b"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
	}
	forged := template("forged")
	forged.Annotations[record] = "GPU-1:1000"
	// A policy holds a moment after it is written.
	eventually(t, "a pod with a record of its own is refused", func() error {
		_, err := pods.Create(t.Context(), forged, metav1.CreateOptions{})
		if err == nil {
			check(t, pods.Delete(t.Context(), "forged", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
			return fmt.Errorf("created")
		}
		if !strings.Contains(err.Error(), "only a scheduler that binds the pod writes it") {
			t.Fatal(err)
		}
		return nil
	})

	_, err := pods.Create(t.Context(), template("p"), metav1.CreateOptions{})
	check(t, err)
	write := func(subresource, value string) error {
		patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %s, "a": "c"}}}`, record, value)
		_, err := pods.Patch(t.Context(), "p", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, strings.Fields(subresource)...)
		return err
	}
	denied := func(step string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "tautline-gpu-devices") {
			t.Errorf("%s: %v", step, err)
		}
	}
	denied("a record by update", write("", `"GPU-1:250"`))
	denied("a record by status", write("status", `"GPU-1:250"`))
	check(t, pods.Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{record: "GPU-1:250"}},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "node-a"},
	}, metav1.CreateOptions{}))
	bound, err := pods.Get(t.Context(), "p", metav1.GetOptions{})
	check(t, err)
	if bound.Annotations[record] != "GPU-1:250" {
		t.Errorf("the bound pod has the record %q", bound.Annotations[record])
	}
	denied("another record", write("", `"GPU-1:1000"`))
	denied("another record by status", write("status", `"GPU-1:1000"`))
	denied("no record", write("", "null"))
	check(t, write("", `"GPU-1:250"`))
	check(t, write("status", `"GPU-1:250"`))
}

// An agent changes its own node only, and there its own labels and annotations.
func TestGPUAgentChangesItsOwnNodeOnly(t *testing.T) {
	plane := startGPUPlane(t, gpu)
	agent := plane.agentOn(t, "node-a")
	patch := func(clients kubernetes.Interface, node, body string) error {
		_, err := clients.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	allowed := `{"metadata": {"labels": {"nvidia.com/gpu.count": %q}, "annotations": {"tautline.io/gpu-inventory": %q}}}`
	admin := `{"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}}`
	check(t, patch(plane.clients, "node-a", admin))
	eventually(t, "an agent on another node is refused", func() error {
		err := patch(agent, "node-b", fmt.Sprintf(allowed, "1", "{}"))
		if err == nil {
			return fmt.Errorf("patched")
		}
		if !strings.Contains(err.Error(), "a GPU agent changes its own node only; this one is on node-a") {
			t.Fatal(err)
		}
		return nil
	})
	check(t, patch(agent, "node-a", fmt.Sprintf(allowed, "8", "{}")))
	check(t, patch(agent, "node-a", fmt.Sprintf(allowed, "7", "[]")))
	check(t, patch(agent, "node-a", `{"metadata": {"labels": {"nvidia.com/gpu.count": null}, "annotations": {"tautline.io/gpu-inventory": null}}}`))
	for body, fault := range map[string]string{
		`{"metadata": {"labels": {"a": "c"}}}`:                                                "only labels of nvidia.com",
		`{"metadata": {"labels": {"a": null}}}`:                                               "only labels of nvidia.com",
		`{"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}`:             "only labels of nvidia.com",
		`{"metadata": {"annotations": {"a": "c"}}}`:                                           "only annotations tautline.io/gpu-*",
		`{"metadata": {"annotations": {"a": null}}}`:                                          "only annotations tautline.io/gpu-*",
		`{"metadata": {"annotations": {"volumes.kubernetes.io/controller": "x"}}}`:            "only annotations tautline.io/gpu-*",
		`{"metadata": {"finalizers": ["example.com/f"]}}`:                                     "labels and annotations only",
		`{"spec": {"unschedulable": true}}`:                                                   "labels and annotations only",
		`{"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}`:                         "labels and annotations only",
		`{"metadata": {"labels": {"nvidia.com/a": "b"}}, "spec": {"podCIDR": "10.9.0.0/24"}}`: "labels and annotations only",
	} {
		if err := patch(agent, "node-a", body); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: %v", body, err)
		}
	}
	// A token without a node, as of a copied account.
	free := plane.withToken(t, plane.token(t, nil))
	if err := patch(free, "node-a", fmt.Sprintf(allowed, "8", "{}")); err == nil || !strings.Contains(err.Error(), "an unknown node") {
		t.Errorf("without a node: %v", err)
	}
	check(t, patch(plane.clients, "node-b", admin))
}

// startGPUPlane has the chart with GPU agents, and two nodes.
func startGPUPlane(t *testing.T, values string) *controlPlane {
	t.Helper()
	plane := startControlPlane(t)
	check(t, plane.apply(t.Context(), manifest(t, "{apiVersion: v1, kind: Namespace, metadata: {name: tautline-system}}")))
	_, rendered := render(t, Release{KubeVersion: "v1.36.3"}, values)
	for _, text := range rendered.Manifests {
		check(t, plane.apply(t.Context(), manifest(t, text)))
	}
	for _, name := range []string{"node-a", "node-b"} {
		plane.node(t, name)
	}
	return plane
}

// agentOn is a client with the token of an agent's pod on a node.
func (c *controlPlane) agentOn(t *testing.T, node string) kubernetes.Interface {
	t.Helper()
	pod, err := c.clients.CoreV1().Pods("tautline-system").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node},
		Spec: corev1.PodSpec{
			ServiceAccountName: "tautline-gpu-agent", NodeName: node,
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}, metav1.CreateOptions{})
	check(t, err)
	return c.withToken(t, c.token(t, &authenticationv1.BoundObjectReference{
		APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
	}))
}

func (c *controlPlane) token(t *testing.T, bound *authenticationv1.BoundObjectReference) string {
	t.Helper()
	token, err := c.clients.CoreV1().ServiceAccounts("tautline-system").CreateToken(t.Context(), "tautline-gpu-agent",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}, metav1.CreateOptions{})
	check(t, err)
	return token.Status.Token
}

func (c *controlPlane) withToken(t *testing.T, token string) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.BearerToken = token
	clients, err := kubernetes.NewForConfig(config)
	check(t, err)
	return clients
}
