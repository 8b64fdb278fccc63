// Command pod-sample writes a pod with every field that Kubernetes has, as JSON and in protobuf,
// for the tests of crates/api. It starts from the sample of Kubernetes' own tests, and replaces
// the values that planning would refuse, and amounts of zero.
package main

import (
	"encoding/json"
	"log"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: pod-sample core.v1.Pod.json FOLDER; the first is in testdata/HEAD of k8s.io/api")
	}
	text, err := os.ReadFile(os.Args[1])
	check(err)
	var pod v1.Pod
	check(json.Unmarshal(text, &pod))
	edit(&pod)

	text, err = json.MarshalIndent(&pod, "", "  ")
	check(err)
	write("core.v1.Pod.json", append(text, '\n'))
	scheme := runtime.NewScheme()
	check(v1.AddToScheme(scheme))
	encoder := protobuf.NewSerializer(scheme, scheme)
	file, err := os.Create(filepath.Join(os.Args[2], "core.v1.Pod.pb"))
	check(err)
	check(encoder.Encode(&pod, file))
	check(file.Close())
}

func edit(pod *v1.Pod) {
	pod.ResourceVersion = "7"
	pod.Labels["app"] = "web"
	pod.Annotations["tautline.io/a"] = "b"
	pod.Finalizers = append(pod.Finalizers, "constraint.ciena.com/remove-underlay_7")

	spec, status := &pod.Spec, &pod.Status
	node := &spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
	node.MatchExpressions[0].Operator = v1.NodeSelectorOpIn
	node.MatchFields[0].Key, node.MatchFields[0].Operator = "metadata.name", v1.NodeSelectorOpIn
	near := spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	away := spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	for _, term := range append(near, away...) {
		term.LabelSelector.MatchExpressions[0].Operator = metav1.LabelSelectorOpNotIn
		term.NamespaceSelector.MatchExpressions[0].Operator = metav1.LabelSelectorOpNotIn
	}
	spec.Tolerations[0].Operator = v1.TolerationOpEqual
	template := "template"
	spec.ResourceClaims = append(spec.ResourceClaims, v1.PodResourceClaim{
		Name: "made", ResourceClaimTemplateName: &template,
	})
	status.ResourceClaimStatuses[0].Name = "made"

	// The pod's own amounts replace those of its containers: so these have other resources.
	spec.Resources.Requests = amounts("cpu", "1")
	spec.Resources.Limits = amounts("cpu", "1", "hugepages-2Mi", "2")
	status.Resources.Requests, status.AllocatedResources = amounts("cpu", "3"), amounts("cpu", "3")
	spec.Overhead = amounts("memory", "1")
	one := &spec.Containers[0]
	one.Resources.Requests = amounts("memory", "1")
	one.Resources.Limits = amounts("example.com/limited", "1")
	spec.Containers = append(spec.Containers, v1.Container{
		Name:      "new",
		Resources: v1.ResourceRequirements{Requests: amounts("memory", "1")},
	})
	sidecar := &spec.InitContainers[0]
	sidecar.Name = "sidecar"
	always := v1.ContainerRestartPolicyAlways
	sidecar.RestartPolicy = &always
	sidecar.Resources.Requests = amounts("memory", "1")
	status.InitContainerStatuses[0].Name = sidecar.Name
	for _, status := range []*v1.ContainerStatus{&status.ContainerStatuses[0], &status.InitContainerStatuses[0]} {
		status.AllocatedResources = amounts("memory", "3", "example.com/allocated", "1")
		status.Resources.Requests = amounts("memory", "3", "example.com/actual", "1")
	}

	status.Phase = v1.PodRunning
	condition := status.Conditions[0]
	of := func(kind v1.PodConditionType, status v1.ConditionStatus, reason, message string) v1.PodCondition {
		condition.Type, condition.Status, condition.Reason, condition.Message = kind, status, reason, message
		return condition
	}
	status.Conditions = []v1.PodCondition{
		of(v1.PodScheduled, v1.ConditionFalse, v1.PodReasonUnschedulable, "0/1 nodes are available: 1 latency/OverLimit"),
		of(v1.PodReady, v1.ConditionTrue, "", ""),
		of(v1.PodResizePending, v1.ConditionTrue, v1.PodReasonInfeasible, ""),
	}
}

func amounts(pairs ...string) v1.ResourceList {
	list := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func write(name string, text []byte) {
	check(os.WriteFile(filepath.Join(os.Args[2], name), text, 0o644))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
