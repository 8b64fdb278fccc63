package chart

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
)

// helm installs, changes the mode, uninstalls and installs again. HELM names another binary
// than that of go.mod.
func TestHelm(t *testing.T) {
	plane := startControlPlane(t)
	helm := plane.helm(t)
	output, err := helm("template tautline " + Dir + " --kube-version=v1.29.14-eks-1")
	if err == nil || !strings.Contains(output, "chart requires kubeVersion: >=1.30.0-0") {
		t.Errorf("an old cluster, without preStop.sleep: %v: %s", err, output)
	}

	const install = "--namespace=tautline-system --create-namespace"
	output, err = helm("install tautline " + Dir + " " + install)
	if err != nil || !strings.Contains(output, "a second kube-scheduler (v1.") {
		t.Fatalf("%v: %s", err, output)
	}

	output, err = helm("install another " + Dir + " --namespace=other --create-namespace")
	if err == nil || !strings.Contains(output, "already installed, by release tautline in namespace tautline-system") {
		t.Errorf("a second installation: %v: %s", err, output)
	}

	// The admission server writes the caBundle; helm leaves it.
	webhooks := plane.dynamic.Resource(schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations",
	})
	ca := base64.StdEncoding.EncodeToString(plane.config.CAData)
	patch := `[{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "` + ca + `"}]`
	_, err = webhooks.Patch(t.Context(), "tautline-governed", types.JSONPatchType, []byte(patch), metav1.PatchOptions{FieldManager: "tautline"})
	check(t, err)

	output, err = helm("upgrade tautline " + Dir + " --namespace=tautline-system --set=scheduler.mode=existing,webhooks.port=8443,extender.tls.requireClientCert=true,gpu.enabled=true,gpu.limits=mps")
	if err != nil || !strings.Contains(output, "kind: KubeSchedulerConfiguration") {
		t.Fatalf("%v: %s", err, output)
	}
	deployments, err := plane.clients.AppsV1().Deployments("tautline-system").List(t.Context(), metav1.ListOptions{})
	check(t, err)
	var names []string
	for _, deployment := range deployments.Items {
		names = append(names, deployment.Name)
	}
	if want := "tautline-admission tautline-controller tautline-extender tautline-gpu-slice tautline-latency"; strings.Join(names, " ") != want {
		t.Errorf("deployments are %v", names)
	}
	governed, err := webhooks.Get(t.Context(), "tautline-governed", metav1.GetOptions{})
	check(t, err)
	if got := (objects{"": governed}).at(t, "MutatingWebhookConfiguration/tautline-governed .webhooks[0].clientConfig.caBundle"); got != ca {
		t.Errorf("caBundle is %q after the upgrade", got)
	}

	output, err = helm("uninstall tautline --namespace=tautline-system")
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	left := plane.ours(t)
	for _, object := range left {
		if object.GetKind() != "CustomResourceDefinition" {
			t.Errorf("uninstall leaves %s", key(&object))
		}
	}
	if len(left) != 7 {
		t.Errorf("uninstall leaves %d objects, not the 7 CRDs", len(left))
	}
	output, err = helm("install tautline " + Dir + " " + install)
	if err != nil {
		t.Fatalf("again: %v: %s", err, output)
	}
}

// helm returns a function that runs it with arguments, for the control plane.
func (c *controlPlane) helm(t *testing.T) func(string) (string, error) {
	t.Helper()
	path := os.Getenv("HELM")
	if path == "" {
		output, err := exec.CommandContext(t.Context(), "go", "tool", "-n", "helm").Output()
		check(t, err)
		path = strings.TrimSpace(string(output))
	}
	file := c.writeKubeconfig(t, "helm", c.config.BearerToken)
	return func(args string) (string, error) {
		command := exec.CommandContext(t.Context(), path, strings.Fields(args)...)
		command.Env = append(os.Environ(), "KUBECONFIG="+file, "HELM_CACHE_HOME="+c.dir, "HELM_CONFIG_HOME="+c.dir, "HELM_DATA_HOME="+c.dir)
		output, err := command.CombinedOutput()
		return string(output), err
	}
}

// ours lists the objects of all kinds that have the chart's label.
func (c *controlPlane) ours(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	lists, err := discovery.ServerPreferredResources(c.clients.Discovery())
	check(t, err)
	var all []unstructured.Unstructured
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		check(t, err)
		for _, resource := range list.APIResources {
			if !strings.Contains(fmt.Sprint(resource.Verbs), "list") {
				continue
			}
			found, err := c.dynamic.Resource(group.WithResource(resource.Name)).
				List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=tautline"})
			check(t, err)
			all = append(all, found.Items...)
		}
	}
	return all
}
