package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// The values with which the chart is deploy and deploy/webhooks.
const asKustomize = `
scheduler: {mode: existing}
webhooks: {governed: false, gpuSlices: true, mutationPolicies: true, modelRegistry: true, port: 8443}
providers: {scripted: {enabled: true}}
priorityClassQuota: false
`

// Differences on purpose, with the reason.
var differences = map[string]string{
	"Namespace//tautline-system: only in kustomize": "helm --create-namespace makes it",

	"Service/tautline-system/tautline-admission: spec.ports[1].targetPort": "webhooks.adminPort can differ",
}

func TestChartIsKustomization(t *testing.T) {
	for _, test := range []struct {
		name, values string
		folders      []string
	}{
		{"deploy", asKustomize, []string{".", "webhooks"}},
		{"network-policy", asKustomize + "networkPolicy: {enabled: true}", []string{".", "webhooks", "network-policy"}},
		{"with-bind", asKustomize + "extender: {bind: true, tls: {requireClientCert: true}}", []string{"with-bind", "webhooks"}},
		{"with-gate", asKustomize + "controller: {advertiseGate: true}", []string{"with-gate", "webhooks"}},
		{"with-clusters", asKustomize + "clusters: {enabled: true}", []string{"with-clusters", "webhooks"}},
		{"with-open-reports", asKustomize + "controller: {openReports: true}", []string{"with-open-reports", "webhooks"}},
		{"with-gpu", asKustomize + "extender: {tls: {requireClientCert: true}}\ngpu: {enabled: true, delivery: device-plugin}", []string{"with-gpu", "webhooks"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			chart, _ := render(t, Release{}, test.values)
			var manifests []string
			for _, folder := range test.folders {
				manifests = append(manifests, kustomize(t, filepath.Join(Dir, "..", folder))...)
			}
			found := compare(parse(t, manifests), chart)
			if test.name == "network-policy" {
				// The chart has one for each component.
				for _, name := range []string{"extender", "controller", "admission", "gpu-slice", "scripted"} {
					delete(found, "NetworkPolicy/tautline-system/tautline-"+name+": only in the chart")
				}
			}
			for difference, detail := range found {
				if differences[difference] == "" {
					t.Errorf("%s %s", difference, detail)
				}
			}
			for difference := range differences {
				if _, is := found[difference]; !is {
					t.Errorf("no longer a difference, remove it from the list: %s", difference)
				}
			}
		})
	}
}

func TestGeneratedFilesAreCurrent(t *testing.T) {
	files, err := Generated(Dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(Dir, name)); err != nil || string(got) != string(want) {
			t.Errorf("%s is not current; run go run ./generate (%v)", name, err)
		}
	}
	for _, pattern := range generatedOnly {
		present, err := filepath.Glob(filepath.Join(Dir, pattern))
		if err != nil || len(present) == 0 {
			t.Errorf("no file is %s (%v)", pattern, err)
		}
		for _, path := range present {
			if name, err := filepath.Rel(Dir, path); err != nil || files[name] == nil {
				t.Errorf("%s has no source (%v)", name, err)
			}
		}
	}
}

// The configuration in the notes is the sample for kube-scheduler.
func TestNotesHaveSchedulerSample(t *testing.T) {
	for sample, set := range map[string]string{
		"all-pods.yaml":  "scheduler: {mode: existing}\nwebhooks: {governed: false}",
		"gated.yaml":     "scheduler: {mode: existing}",
		"gated-gpu.yaml": "scheduler: {mode: existing}\nextender: {bind: true, tls: {requireClientCert: true}}",
	} {
		_, rendered := render(t, Release{}, set)
		_, configuration, ok := strings.Cut(rendered.Notes, "\n\n    apiVersion")
		configuration, _, end := strings.Cut("    apiVersion"+configuration, "\n\n")
		if !ok || !end {
			t.Fatalf("%s: no configuration in\n%s", sample, rendered.Notes)
		}
		got := strings.ReplaceAll("\n"+configuration, "\n    ", "\n")
		file, err := os.ReadFile(filepath.Join(Dir, "../scheduler", sample))
		if err != nil {
			t.Fatal(err)
		}
		want := values(t, string(file))
		if have := values(t, got); !reflect.DeepEqual(have, want) {
			t.Errorf("%s:\nsample %v\nnotes  %v", sample, want, have)
		}
	}
}

func kustomize(t *testing.T, dir string) []string {
	t.Helper()
	result, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	var manifests []string
	for _, resource := range result.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		manifests = append(manifests, string(text))
	}
	return manifests
}

// compare returns the differences with their detail.
func compare(kustomize, chart objects) map[string]string {
	found := map[string]string{}
	for key, object := range kustomize {
		if chart[key] == nil {
			found[key+": only in kustomize"] = ""
			continue
		}
		diff(found, key+": ", "", normal(object), normal(chart[key]))
	}
	for key := range chart {
		if kustomize[key] == nil {
			found[key+": only in the chart"] = ""
		}
	}
	return found
}

// normal drops helm's labels, the labels that all objects of the chart have, and defaults.
func normal(object *unstructured.Unstructured) map[string]any {
	object = object.DeepCopy()
	labels := object.GetLabels()
	for _, label := range []string{
		"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/part-of",
		"app.kubernetes.io/version", "helm.sh/chart",
	} {
		delete(labels, label)
	}
	object.SetLabels(nonEmpty(labels))
	annotations := object.GetAnnotations()
	delete(annotations, "helm.sh/resource-policy")
	object.SetAnnotations(nonEmpty(annotations))
	containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	for _, container := range containers {
		// The default of an image with a tag.
		if fields := container.(map[string]any); fields["imagePullPolicy"] == "IfNotPresent" {
			delete(fields, "imagePullPolicy")
		}
	}
	if containers != nil {
		_ = unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers")
	}
	return object.Object
}

func nonEmpty(fields map[string]string) map[string]string {
	if len(fields) == 0 {
		return nil
	}
	return fields
}

func diff(found map[string]string, object, path string, kustomize, chart any) {
	switch left := kustomize.(type) {
	case map[string]any:
		if right, ok := chart.(map[string]any); ok {
			for field := range left {
				diff(found, object, strings.TrimPrefix(path+"."+field, "."), left[field], right[field])
			}
			for field := range right {
				if _, both := left[field]; !both {
					diff(found, object, strings.TrimPrefix(path+"."+field, "."), nil, right[field])
				}
			}
			return
		}
	case []any:
		if right, ok := chart.([]any); ok && len(left) == len(right) {
			for i := range left {
				diff(found, object, fmt.Sprintf("%s[%d]", path, i), left[i], right[i])
			}
			return
		}
	}
	if !reflect.DeepEqual(kustomize, chart) {
		found[object+path] = fmt.Sprintf("is %v in kustomize, %v in the chart", kustomize, chart)
	}
}
