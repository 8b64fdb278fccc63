package chart

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// The API server takes all objects as they are: no unknown field, no warning, and pods that
// meet the Pod Security Standard restricted.
func TestAPIServerTakesTheChart(t *testing.T) {
	plane := startControlPlane(t)
	plane.namespace(t, "tautline-system")
	served, err := plane.clients.Discovery().ServerVersion()
	check(t, err)
	for _, set := range []string{
		"", existing, strings.Replace(everything, gpu, "", 1), everything, everything + existing,
		strings.Replace(everything, gpu, "gpu: {enabled: true, delivery: device-plugin}\n", 1),
		// GPU agents and pods on the host's network are not restricted; in a namespace of its own.
		"webhooks: {hostNetwork: true, port: 10260}",
		"podSecurityContext: null\nsecurityContext: null",
	} {
		release := Release{KubeVersion: served.GitVersion}
		privileged := strings.Contains(set, "hostNetwork") || strings.Contains(set, "null") || strings.Contains(set, "gpu: {enabled")
		if privileged {
			release.Namespace = "other"
			check(t, plane.apply(t.Context(), manifest(t, "{apiVersion: v1, kind: Namespace, metadata: {name: other}}")))
		}
		all, rendered := render(t, release, set)
		for _, text := range rendered.Manifests {
			object := all[key(manifest(t, text))]
			if object.GroupVersionKind().Group == "monitoring.coreos.com" {
				continue // Its CRDs are the Prometheus operator's.
			}
			if err := plane.apply(t.Context(), object); err != nil {
				t.Errorf("%q: %s: %v", set, key(object), err)
			}
			for _, warning := range plane.warnings {
				t.Errorf("%q: %s: warning: %s", set, key(object), warning)
			}
			plane.warnings = nil
		}
	}
	// So are the dispatcher and the accounts in other clusters, which the chart does not have.
	plane.namespace(t, "kueue-system")
	dispatcher := kustomize(t, filepath.Join(Dir, "../with-dispatch"))
	worker, err := os.ReadFile(filepath.Join(Dir, "../with-dispatch/worker.yaml"))
	check(t, err)
	peer, err := os.ReadFile(filepath.Join(Dir, "../with-clusters/peer.yaml"))
	check(t, err)
	accounts := strings.Split(string(worker)+"\n---\n"+string(peer), "\n---\n")
	for _, text := range append(dispatcher, accounts...) {
		object := manifest(t, text)
		if err := plane.apply(t.Context(), object); err != nil || len(plane.warnings) > 0 {
			t.Errorf("%s: %v %v", key(object), err, plane.warnings)
		}
		plane.warnings = nil
	}
	// The checks above see what they look for.
	all, _ := render(t, Release{}, "podSecurityContext: null\nsecurityContext: null")
	controller := all["Deployment/tautline-system/tautline-controller"]
	check(t, plane.apply(t.Context(), controller))
	if len(plane.warnings) == 0 {
		t.Error("no warning of a pod that is not restricted")
	}
	check(t, unstructured.SetNestedField(controller.Object, "a", "spec", "template", "spec", "nodeSelektor"))
	if err := plane.apply(t.Context(), controller); err == nil || !strings.Contains(err.Error(), "nodeSelektor") {
		t.Errorf("an unknown field is taken: %v", err)
	}
}

// kube-scheduler runs with the chart's configuration and account, leads by its Lease, and
// binds a pod to the node that the extender returns.
func TestSecondSchedulerPlacesPod(t *testing.T) {
	plane := startControlPlane(t)
	plane.namespace(t, "tautline-system")
	all, rendered := render(t, Release{}, "webhooks: {governed: false, ownResources: false}")
	for _, text := range rendered.Manifests {
		check(t, plane.apply(t.Context(), manifest(t, text)))
	}
	for _, name := range []string{"node-a", "node-b"} {
		plane.node(t, name)
	}
	extender, calls := startExtender(t, "node-b")

	// In a pod the configuration names no kubeconfig, and the address of the extender is fixed.
	configuration := values(t, all.at(t, `ConfigMap/tautline-scheduler .data.config\.yaml`))
	configuration["extenders"].([]any)[0].(map[string]any)["urlPrefix"] = extender
	kubeconfig := plane.kubeconfig(t, "tautline-scheduler")
	configuration["clientConnection"] = map[string]any{"kubeconfig": kubeconfig}
	text, err := yaml.Marshal(configuration)
	check(t, err)
	address := freeAddress(t)
	_, port, err := net.SplitHostPort(address)
	check(t, err)
	plane.start(t, "kube-scheduler", "--config="+plane.write(t, "config.yaml", text), "--v=2",
		"--bind-address=127.0.0.1", "--secure-port="+port,
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig)

	pods := plane.clients.CoreV1().Pods("default")
	for name, schedulerName := range map[string]string{"governed": "tautline-scheduler", "other": "default-scheduler"} {
		_, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				SchedulerName: schedulerName,
				Containers:    []corev1.Container{{Name: "c", Image: "i"}},
			},
		}, metav1.CreateOptions{})
		check(t, err)
	}
	eventually(t, "the pod has its node", func() error {
		pod, err := pods.Get(t.Context(), "governed", metav1.GetOptions{})
		if err == nil && pod.Spec.NodeName != "node-b" {
			err = fmt.Errorf("on node %q, %v", pod.Spec.NodeName, pod.Status.Conditions)
		}
		return err
	})
	if calls.Load() == 0 {
		t.Error("the extender was not called")
	}
	other, err := pods.Get(t.Context(), "other", metav1.GetOptions{})
	check(t, err)
	if other.Spec.NodeName != "" {
		t.Errorf("a pod of another scheduler is on %s", other.Spec.NodeName)
	}
	if _, err := plane.clients.CoordinationV1().Leases("tautline-system").Get(t.Context(), "tautline-scheduler", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if leases, err := plane.clients.CoordinationV1().Leases("kube-system").List(t.Context(), metav1.ListOptions{}); err == nil {
		for _, lease := range leases.Items {
			if strings.Contains(lease.Name, "scheduler") {
				t.Errorf("Lease %s in kube-system", lease.Name)
			}
		}
	}
	probe := rest.CopyConfig(&rest.Config{Host: "https://" + address, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	client, err := rest.HTTPClientFor(probe)
	check(t, err)
	eventually(t, "the probe succeeds", func() error {
		response, err := client.Get("https://" + address + "/healthz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %s", response.Status)
		}
		return nil
	})
	for line := range strings.SplitSeq(plane.log("kube-scheduler"), "\n") {
		if strings.Contains(strings.ToLower(line), "forbidden") {
			t.Errorf("kube-scheduler lacks a right: %s", line)
		}
	}
}

// startExtender answers each filter with one node, and counts the calls.
func startExtender(t *testing.T, node string) (string, *atomic.Int32) {
	t.Helper()
	calls := &atomic.Int32{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		calls.Add(1)
		var body any = []any{}
		if strings.HasSuffix(request.URL.Path, "/filter") {
			body = map[string]any{"nodenames": []string{node}}
		}
		_ = json.NewEncoder(answer).Encode(body)
	})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return "http://" + listener.Addr().String(), calls
}

func (c *controlPlane) namespace(t *testing.T, name string) {
	t.Helper()
	check(t, c.apply(t.Context(), manifest(t, `
apiVersion: v1
kind: Namespace
metadata:
  name: `+name+`
  labels: {pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/warn: restricted}
`)))
}

func (c *controlPlane) node(t *testing.T, name string) {
	t.Helper()
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods: resource.MustParse("100"),
	}
	nodes := c.clients.CoreV1().Nodes()
	node, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	check(t, err)
	node.Status = corev1.NodeStatus{
		Capacity: capacity, Allocatable: capacity,
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}
	_, err = nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	check(t, err)
}

// kubeconfig has a token of the account in tautline-system.
func (c *controlPlane) kubeconfig(t *testing.T, account string) string {
	t.Helper()
	token, err := c.clients.CoreV1().ServiceAccounts("tautline-system").
		CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	check(t, err)
	return c.writeKubeconfig(t, account, token.Status.Token)
}

func manifest(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	read := &unstructured.Unstructured{}
	check(t, yaml.UnmarshalStrict([]byte(text), &read.Object))
	return read
}
