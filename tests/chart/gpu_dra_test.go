package chart

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	driver = "gpu.tautline.io"
	dra    = "gpu: {enabled: true, delivery: dra, evictAfter: 10m}\n"
)

// One template decides the delivery, and all objects follow it.
func TestGPUDelivery(t *testing.T) {
	const auto = "gpu: {enabled: true}"
	for _, test := range []struct {
		version, values, why string
		dra                  bool
	}{
		{"v1.35.9", auto, "gpu.delivery auto, Kubernetes v1.35.9", false},
		{"v1.35.4-gke.1828000", auto, "gpu.delivery auto, Kubernetes v1.35.4-gke.1828000", false},
		{"v1.36.0", auto, "gpu.delivery auto, Kubernetes v1.36.0", true},
		{"v1.36.0-rc.1", auto, "gpu.delivery auto", true},
		{"v1.36.3-eks-7f9249a", auto, "gpu.delivery auto", true},
		{"v1.37.1+k3s1", auto, "gpu.delivery auto", true},
		{"v1.30.0", devicePlugin, "set by gpu.delivery", false},
		{"v1.36.3", devicePlugin, "set by gpu.delivery", false},
		{"v1.35.1", dra, "set by gpu.delivery", true},
		{"v1.36.3", dra, "set by gpu.delivery", true},
	} {
		t.Run(test.version+" "+test.values, func(t *testing.T) {
			all, rendered := render(t, Release{KubeVersion: test.version}, test.values)
			agent := "DaemonSet/tautline-gpu-agent "
			bind := `["extender","--listen=127.0.0.1:8888","--bind"]`
			for field, is := range map[string]bool{
				"DeviceClass/gpu.tautline.io":                                all["DeviceClass//gpu.tautline.io"] != nil,
				"ValidatingAdmissionPolicy/tautline-gpu-requests":            all["ValidatingAdmissionPolicy//tautline-gpu-requests"] != nil,
				"ValidatingAdmissionPolicyBinding/tautline-gpu-agent-slices": all["ValidatingAdmissionPolicyBinding//tautline-gpu-agent-slices"] != nil,
				"--delivery=dra":    strings.Contains(all.at(t, agent+args), `"--delivery=dra"`),
				"plugins-registry":  strings.Contains(all.at(t, agent+pod+".volumes[*].name"), "plugins-registry"),
				"resourceslices":    strings.Contains(all.at(t, "ClusterRole/tautline-gpu-agent .rules[*].resources"), "resourceslices"),
				"no device-plugins": !strings.Contains(all.at(t, agent+pod+".volumes[*].name"), "device-plugins"),
				"no --bind":         all.at(t, "Deployment/tautline-scheduler "+args) != bind,
				"the notes":         strings.Contains(rendered.Notes, "GPU cards are DRA devices ("+test.why),
				"no such notes":     !strings.Contains(rendered.Notes, "GPU cards come from a device plugin ("+test.why),
			} {
				if is != test.dra {
					t.Errorf("%s: %t, want %t", field, is, test.dra)
				}
			}
		})
	}
	// The extender binds for other providers all the same.
	all, _ := render(t, Release{KubeVersion: "v1.36.3"}, dra+"extender: {bind: true}")
	if got := all.at(t, "Deployment/tautline-scheduler "+args); !strings.Contains(got, "--bind") {
		t.Errorf("extender.bind has no effect: %s", got)
	}
	all, rendered := render(t, Release{KubeVersion: "v1.36.3"}, "")
	if all["DeviceClass//gpu.tautline.io"] != nil || strings.Contains(rendered.Notes, "GPU") {
		t.Error("without gpu.enabled there is a class or a note")
	}
}

// With DRA the resources of the device plugin, which no node would offer, are refused at once.
func TestDeliveriesThatContradictAreRefused(t *testing.T) {
	const shares = "webhooks: {gpuSlices: true}\nadmission: {extraArgs: [%s]}\n"
	for args, fault := range map[string]string{
		"--gpu-shared-resource=tautline.io/gpu-milli":    "turns cards into a resource that gpu.delivery dra refuses",
		"--gpu-shared-resource, tautline.io/gpu-memory":  "turns cards into a resource that gpu.delivery dra refuses",
		"--gpu-shared-resource=nvidia.com/gpu.shared":    "",
		"--log=debug, --gpu-shared-resource=a.example/b": "",
	} {
		for _, set := range []string{dra, devicePlugin} {
			_, err := Release{KubeVersion: "v1.36.3", Values: values(t, set+fmt.Sprintf(shares, args))}.Render()
			refused := fault != "" && set == dra
			if (err != nil) != refused || refused && !strings.Contains(err.Error(), fault) {
				t.Errorf("%s %s: %v", set, args, err)
			}
		}
	}
	_, err := Release{KubeVersion: "v1.33.4", Values: values(t, dra)}.Render()
	if err == nil || !strings.Contains(err.Error(), "gpu.delivery dra needs Kubernetes 1.36") {
		t.Errorf("on an old cluster: %v", err)
	}
}

// An agent writes slices of its driver, its node and its node's pool only.
func TestGPUAgentWritesItsOwnSlicesOnly(t *testing.T) {
	plane := startGPUPlane(t, dra)
	agent := plane.agentOn(t, "node-a").ResourceV1().ResourceSlices()
	free := plane.withToken(t, plane.token(t, nil)).ResourceV1().ResourceSlices()
	admin := plane.clients.ResourceV1().ResourceSlices()
	slice := func(name, driver, node, pool string) *resourcev1.ResourceSlice {
		shared := true
		return &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourcev1.ResourceSliceSpec{
				Driver: driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: pool, ResourceSliceCount: 1},
				Devices: []resourcev1.Device{{Name: "gpu-0", AllowMultipleAllocations: &shared}},
			},
		}
	}
	eventually(t, "a slice of another node is refused", func() error {
		_, err := agent.Create(t.Context(), slice("early", driver, "node-b", "node-b"), metav1.CreateOptions{})
		if err == nil {
			check(t, admin.Delete(t.Context(), "early", metav1.DeleteOptions{}))
			return fmt.Errorf("created")
		}
		if !strings.Contains(err.Error(), "slices of its own node only (spec.nodeName); this one is on node-a") {
			t.Fatal(err)
		}
		return nil
	})
	denied := func(step string, err error, fault string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: %v\nwant %s", step, err, fault)
		}
	}
	_, err := agent.Create(t.Context(), slice("a", "gpu.nvidia.com", "node-a", "node-a"), metav1.CreateOptions{})
	denied("another driver", err, "of the driver gpu.tautline.io only; spec.driver is gpu.nvidia.com")
	_, err = agent.Create(t.Context(), slice("a", driver, "node-a", "node-b"), metav1.CreateOptions{})
	denied("another pool", err, "spec.pool.name is node-b")
	everywhere, yes := slice("a", driver, "", "node-a"), true
	everywhere.Spec.NodeName, everywhere.Spec.AllNodes = nil, &yes
	_, err = agent.Create(t.Context(), everywhere, metav1.CreateOptions{})
	denied("all nodes", err, "slices of its own node only")
	_, err = free.Create(t.Context(), slice("a", driver, "node-a", "node-a"), metav1.CreateOptions{})
	denied("a token without a node", err, "an unknown node")

	// The chart's test server is that of Kubernetes 1.36: it keeps the fields that make cards divisible.
	own, err := agent.Create(t.Context(), slice("a", driver, "node-a", "node-a"), metav1.CreateOptions{})
	check(t, err)
	if shared := own.Spec.Devices[0].AllowMultipleAllocations; shared == nil || !*shared {
		t.Error("allowMultipleAllocations is dropped")
	}
	patch := []byte(`{"spec": {"pool": {"generation": 2}}}`)
	_, err = agent.Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{})
	check(t, err)
	for name, other := range map[string]*resourcev1.ResourceSlice{
		"b": slice("b", driver, "node-b", "node-b"), "n": slice("n", "gpu.nvidia.com", "node-a", "node-a"),
	} {
		_, err = admin.Create(t.Context(), other, metav1.CreateOptions{})
		check(t, err)
		_, err = agent.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		denied("a change of "+name, err, "tautline-gpu-agent-slices")
		denied("removal of "+name, agent.Delete(t.Context(), name, metav1.DeleteOptions{}), "tautline-gpu-agent-slices")
	}
	check(t, agent.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	check(t, admin.Delete(t.Context(), "b", metav1.DeleteOptions{}))
}

// An agent writes the devices of claims on its own node, of its driver, and nothing else of them.
func TestGPUAgentWritesDevicesOfItsClaims(t *testing.T) {
	plane := startGPUPlane(t, dra)
	claims := plane.clients.ResourceV1().ResourceClaims("default")
	agent := plane.agentOn(t, "node-a").ResourceV1().ResourceClaims("default")
	allocated := func(name, driver, node string) {
		t.Helper()
		claim, err := claims.Create(t.Context(), &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
				{Name: "card", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: driver}},
			}}},
		}, metav1.CreateOptions{})
		check(t, err)
		claim.Status.Allocation = &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
				{Request: "card", Driver: driver, Pool: node, Device: "gpu-0"},
			}},
			NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{
					Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node},
				}},
			}}},
		}
		_, err = claims.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
		check(t, err)
	}
	write := func(name, driver, node string) error {
		patch := fmt.Sprintf(`{"status": {"devices": [{"driver": %q, "pool": %q, "device": "gpu-0", "data": {"a": "b"}}]}}`, driver, node)
		_, err := agent.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		return err
	}
	allocated("own", driver, "node-a")
	allocated("far", driver, "node-b")
	allocated("nvidia", "gpu.nvidia.com", "node-a")
	check(t, write("own", driver, "node-a"))
	own, err := agent.Get(t.Context(), "own", metav1.GetOptions{})
	check(t, err)
	own.Status.Devices[0].Data.Raw = []byte(`{"a":"c"}`)
	own, err = agent.UpdateStatus(t.Context(), own, metav1.UpdateOptions{})
	check(t, err)
	for step, err := range map[string]error{
		"a claim of another node":   write("far", driver, "node-b"),
		"a claim of another driver": write("nvidia", "gpu.nvidia.com", "node-a"),
	} {
		if err == nil || !strings.Contains(err.Error(), "changing status.devices requires") {
			t.Errorf("%s: %v", step, err)
		}
	}
	own.Status.Allocation = nil
	own.Status.Devices = nil
	if _, err = agent.UpdateStatus(t.Context(), own, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "changing status.allocation") {
		t.Errorf("an allocation: %v", err)
	}
}

// Pods that ask for the device plugin's resources are refused with the fix.
func TestOldGPURequestsAreRefused(t *testing.T) {
	plane := startGPUPlane(t, dra)
	pods := plane.clients.CoreV1().Pods("default")
	create := func(name string, change func(*corev1.PodSpec)) error {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "plain", Image: "i"}}},
		}
		change(&pod.Spec)
		_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	}
	asks := func(resourceName, quantity string) corev1.ResourceRequirements {
		list := corev1.ResourceList{corev1.ResourceName(resourceName): resource.MustParse(quantity)}
		return corev1.ResourceRequirements{Requests: list, Limits: list}
	}
	milli := func(spec *corev1.PodSpec) {
		spec.Containers = append(spec.Containers, corev1.Container{Name: "model", Image: "i", Resources: asks("tautline.io/gpu-milli", "250")})
	}
	eventually(t, "a pod with milli is refused", func() error {
		err := create("milli", milli)
		if err == nil {
			check(t, pods.Delete(t.Context(), "milli", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
			return fmt.Errorf("created")
		}
		for _, part := range []string{
			"container model asks for tautline.io/gpu-milli", "tautline.io/gpu: 1", "class gpu.tautline.io", "docs/howto/gpu-sharing.md",
		} {
			if !strings.Contains(err.Error(), part) {
				t.Fatalf("%v\nhas no %s", err, part)
			}
		}
		return nil
	})
	memory := create("memory", func(spec *corev1.PodSpec) {
		spec.InitContainers = []corev1.Container{{Name: "load", Image: "i", Resources: asks("tautline.io/gpu-memory", "20")}}
	})
	if memory == nil || !strings.Contains(memory.Error(), "container load asks for") {
		t.Errorf("memory of an init container: %v", memory)
	}
	for name, resources := range map[string]corev1.ResourceRequirements{
		"none": {}, "zero": asks("tautline.io/gpu-milli", "0"), "card": asks("tautline.io/gpu", "1"), "cpu": asks("cpu", "500m"),
	} {
		check(t, create(name, func(spec *corev1.PodSpec) { spec.Containers[0].Resources = resources }))
	}
}
