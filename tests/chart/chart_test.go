package chart

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestLint(t *testing.T) {
	for _, set := range []string{"", existing, everything, everything + existing} {
		for _, message := range lint.RunAll(Dir, values(t, set), "tautline-system").Messages {
			// A missing icon.
			if message.Severity > 1 {
				t.Errorf("%q: %v", set, message)
			}
		}
	}
}

func TestSecondScheduler(t *testing.T) {
	all, _ := render(t, Release{}, "")
	for key, object := range all {
		kind, name := object.GetKind(), object.GetName()
		if object.GetNamespace() == "kube-system" && key != "RoleBinding/kube-system/tautline-scheduler-authentication-reader" {
			t.Errorf("%s is in kube-system", key)
		}
		if kind == "Service" && strings.Contains(all.at(t, "Service/"+name+" .spec.selector"), "tautline-scheduler") {
			if ports := all.at(t, "Service/"+name+" .spec.ports[*].name"); name != "tautline-extender" || ports != "admin" {
				t.Errorf("%s exposes the scheduler's ports %s", key, ports)
			}
		}
		if kind == "Secret" {
			t.Errorf("%s is a Secret", key)
		}
	}
	if all["Service/tautline-system/tautline-extender"] == nil {
		t.Error("no Service has the extender's admin port")
	}
	for field, text := range (want{
		"Deployment/tautline-scheduler " + pod + ".containers[*].name":                                                                                    "tautline kube-scheduler",
		"Deployment/tautline-scheduler " + args:                                                                                                           `["extender","--listen=127.0.0.1:8888"]`,
		"Deployment/tautline-scheduler " + container + ".ports[*].name":                                                                                   "admin",
		"Deployment/tautline-scheduler " + pod + ".volumes[*].name":                                                                                       "configuration",
		"Deployment/tautline-scheduler .spec.replicas":                                                                                                    "2",
		"Deployment/tautline-scheduler " + pod + ".serviceAccountName":                                                                                    "tautline-scheduler",
		"ClusterRoleBinding/tautline-scheduler .roleRef.name":                                                                                             "system:kube-scheduler",
		"ClusterRoleBinding/tautline-scheduler-volumes .roleRef.name":                                                                                     "system:volume-scheduler",
		"ClusterRoleBinding/tautline-extender .subjects[*].name":                                                                                          "tautline-scheduler",
		"ClusterRoleBinding/tautline-controller-kinds .subjects[*].name":                                                                                  "tautline-controller tautline-scheduler",
		"Role/tautline-scheduler .rules[1].resourceNames":                                                                                                 `["tautline-scheduler"]`,
		"MutatingWebhookConfiguration/tautline-governed .webhooks[*].clientConfig.service.path":                                                           "/mutate-governed",
		"MutatingWebhookConfiguration/tautline-governed .webhooks[*].failurePolicy":                                                                       "Ignore",
		`MutatingWebhookConfiguration/tautline-governed .webhooks[*].namespaceSelector.matchExpressions[?(@.key=="tautline.io/second-scheduler")].values`: `["disabled"]`,
	}) {
		if got := all.at(t, field); got != text {
			t.Errorf("%s\nis   %q\nwant %q", field, got, text)
		}
	}
	// The extender of the sample for all pods, over loopback.
	sample, err := os.ReadFile(filepath.Join(Dir, "../scheduler/all-pods.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	expected := values(t, string(sample))["extenders"].([]any)[0].(map[string]any)
	delete(expected, "enableHTTPS")
	delete(expected, "tlsConfig")
	expected["urlPrefix"] = "http://127.0.0.1:8888"
	configuration := values(t, all.at(t, `ConfigMap/tautline-scheduler .data.config\.yaml`))
	if extenders := configuration["extenders"].([]any); !reflect.DeepEqual(extenders, []any{expected}) {
		t.Errorf("extenders are %v, not %v", extenders, expected)
	}
	election := map[string]any{"leaderElect": true, "resourceName": "tautline-scheduler", "resourceNamespace": "tautline-system"}
	if !reflect.DeepEqual(configuration["leaderElection"], election) {
		t.Errorf("leaderElection is %v", configuration["leaderElection"])
	}
}

func TestOtherNamespace(t *testing.T) {
	for _, set := range []string{"", existing, everything} {
		all, rendered := render(t, Release{Namespace: "limits"}, set)
		for key, object := range all {
			text, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "tautline-system") {
				t.Errorf("%s has tautline-system:\n%s", key, text)
			}
		}
		if strings.Contains(rendered.Notes, "tautline-system") {
			t.Errorf("the notes have tautline-system:\n%s", rendered.Notes)
		}
		const exempt = `["kube-system","limits"`
		field := "MutatingWebhookConfiguration/tautline-governed .webhooks[0].namespaceSelector.matchExpressions[0].values"
		if got := all.at(t, field); !strings.HasPrefix(got, exempt) {
			t.Errorf("exempt namespaces are %s", got)
		}
		if got := all.at(t, "Deployment/tautline-controller "+args); !strings.Contains(got, "--exempt-namespaces=kube-system,limits") {
			t.Errorf("arguments of the controller are %s", got)
		}
	}
}

func TestKubeSchedulerHasClusterVersion(t *testing.T) {
	for version, tag := range map[string]string{
		"v1.36.3":                  "v1.36.3",
		"v1.33.4-eks-7f9249a":      "v1.33.4",
		"v1.34.1-gke.1828000":      "v1.34.1",
		"v1.32.8+k3s1":             "v1.32.8",
		"v1.32.8+rke2r1":           "v1.32.8",
		"v1.31.11+5ac7f4e":         "v1.31.11",
		"v1.33.2-aliyun.1+abc-dev": "v1.33.2",
	} {
		all, _ := render(t, Release{KubeVersion: version}, "")
		if got := all.at(t, "Deployment/tautline-scheduler "+scheduler+".image"); got != "registry.k8s.io/kube-scheduler:"+tag {
			t.Errorf("%s: image is %s", version, got)
		}
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	for _, test := range []struct{ values, fault string }{
		{"replicas: 3", "additional properties 'replicas' not allowed"},
		{"extender: {replica: 3}", "additional properties 'replica' not allowed"},
		{"extender: {replicas: 0}", "minimum: got 0, want 1"},
		{"extender: {replicas: two}", "got string, want integer"},
		{"scheduler: {mode: first}", "value must be one of 'second', 'existing'"},
		{"scheduler: {name: default-scheduler}", "'not' failed"},
		{"image: {pullPolicy: Sometimes}", "value must be one of"},
		{"webhooks: {port: 70000}", "maximum: got 70,000, want 65,535"},
		{"webhooks: {governed: 'yes'}", "got string, want boolean"},
		{"providerUnavailable: Reject", "value must be one of"},
		{"exemptNamespaces: kube-system", "got string, want array"},
		{"controller: {extraArgs: [1]}", "got number, want string"},
		{"providerTLS: {serverSecret: s}", "providerTLS.serverSecret needs providerTLS.clientSecret"},
		{"webhooks: {hostNetwork: true}", "10250 is the kubelet's"},
		{"webhooks: {port: 9090}", "webhooks.port and webhooks.adminPort must differ"},
		{existing + "extender: {bind: true}", "extender.bind in mode existing needs extender.tls.requireClientCert"},
		{existing + "gpu: {enabled: true, delivery: device-plugin}", "gpu.enabled with gpu.delivery device-plugin turns extender.bind on"},
		{"gpu: {enabled: true}\nproviders: {gpuSlice: {enabled: false}}", "gpu.enabled needs providers.gpuSlice.enabled"},
		{"gpu: {enabled: true, limits: hami-core}", "gpu.limits hami-core needs gpu.hamiCore"},
		{"gpu: {enabled: true, delivery: device-plugin, evictAfter: 10m}", "gpu.evictAfter needs gpu.delivery dra"},
		{"gpu: {evictAfter: ten}", "does not match pattern"},
		{"gpu: {delivery: nri}", "value must be one of 'auto', 'dra', 'device-plugin'"},
		{"clusters: {namespace: a/b}", "does not match pattern"},
		{"clusters: {enabled: true, namespace: tautline-system}", "clusters.namespace must not be the release's namespace"},
		{"gpu: {limits: strict}", "value must be one of 'none', 'timeslice', 'mps', 'mig', 'hami-core'"},
	} {
		_, err := Release{Values: values(t, test.values)}.Render()
		if err == nil || !strings.Contains(err.Error(), test.fault) {
			t.Errorf("%s: %v\nwant %s", test.values, err, test.fault)
		}
	}
}

func TestSubchartValuesAreAllowed(t *testing.T) {
	if _, err := (Release{Values: values(t, "global: {a: b}")}).Render(); err != nil {
		t.Error(err)
	}
}

func TestRenderingIsStable(t *testing.T) {
	_, first := render(t, Release{}, everything)
	_, second := render(t, Release{}, everything)
	if !reflect.DeepEqual(first, second) {
		t.Error("two renderings differ")
	}
}

func TestCRDsStay(t *testing.T) {
	all, _ := render(t, Release{}, "")
	crds := 0
	for _, object := range all {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		crds++
		if object.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s is deleted with the release", object.GetName())
		}
	}
	if crds != 7 {
		t.Errorf("%d CRDs", crds)
	}
}

// Components without a Service are scraped, too: the PodMonitor selects their pods.
func TestPodMonitorSelectsAllPods(t *testing.T) {
	all, _ := render(t, Release{}, everything)
	monitor := all["PodMonitor/tautline-system/tautline"]
	if monitor == nil {
		t.Fatal("no PodMonitor")
	}
	labels, _, _ := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	endpoints, _, _ := unstructured.NestedSlice(monitor.Object, "spec", "podMetricsEndpoints")
	if len(labels) == 0 || len(endpoints) != 1 || endpoints[0].(map[string]any)["honorLabels"] != true {
		t.Fatalf("%v, %v", labels, endpoints)
	}
	port := endpoints[0].(map[string]any)["port"]
	pods := 0
	for key, object := range all {
		template, is, _ := unstructured.NestedMap(object.Object, "spec", "template")
		if !is {
			continue
		}
		pods++
		has, _, _ := unstructured.NestedStringMap(template, "metadata", "labels")
		for label, value := range labels {
			if has[label] != value {
				t.Errorf("%s: the pods have no label %s=%s", key, label, value)
			}
		}
		ports := 0
		containers, _, _ := unstructured.NestedSlice(template, "spec", "containers")
		for _, container := range containers {
			named, _, _ := unstructured.NestedSlice(container.(map[string]any), "ports")
			for _, of := range named {
				if of.(map[string]any)["name"] == port {
					ports++
				}
			}
		}
		if ports != 1 {
			t.Errorf("%s: %d ports are named %s", key, ports, port)
		}
	}
	if pods < 8 {
		t.Errorf("only %d workloads", pods)
	}
}

const gpu = "gpu: {enabled: true, limits: mps}\n"

const everything = `
extender: {bind: true, tls: {requireClientCert: true}}
controller: {advertiseGate: true, openReports: true}
webhooks: {gpuSlices: true, mutationPolicies: true, modelRegistry: true, adminPort: 9091}
providers: {scripted: {enabled: true, rules: [cost]}}
providerUnavailable: reject
exemptNamespaces: [monitoring]
providerNamespaces: [infra]
providerTLS: {clientSecret: c, serverSecret: s}
clusters: {enabled: true}
listenHost: 0.0.0.0
` + gpu + `networkPolicy: {enabled: true}
metrics: {podMonitor: {enabled: true}, prometheusRule: {enabled: true}}
dashboards: {enabled: true}
`
