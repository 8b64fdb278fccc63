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

// Claims of amounts that no card can give are refused with the field and the fix, in a template as well.
func TestGPUClaimsThatFitNoCardAreRefused(t *testing.T) {
	plane := startGPUPlane(t, dra)
	const mig = "mig." + driver
	claims, templates := plane.clients.ResourceV1().ResourceClaims("default"), plane.clients.ResourceV1().ResourceClaimTemplates("default")
	var of claimRequests
	spec := func(requests ...resourcev1.DeviceRequest) resourcev1.ResourceClaimSpec {
		return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}}
	}
	create := func(name string, spec resourcev1.ResourceClaimSpec) (claim, template error) {
		_, claim = claims.Create(t.Context(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
		_, template = templates.Create(t.Context(), &resourcev1.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec},
		}, metav1.CreateOptions{})
		return claim, template
	}
	eventually(t, "a claim of memory is refused", func() error {
		_, err := create("early", spec(of.exactly("gpu", driver, "memory=10Gi")))
		if err == nil {
			_ = claims.Delete(t.Context(), "early", metav1.DeleteOptions{})
			check(t, templates.Delete(t.Context(), "early", metav1.DeleteOptions{}))
			return fmt.Errorf("created")
		}
		return nil
	})

	const (
		exact  = "[gpu].exactly.capacity.requests"
		amount = ", not 1 to 1000. Leave capacity out for a whole card, and ask count: 2 for two cards: docs/howto/gpu-sharing.md"
	)
	card := of.exactly("card", driver, "")
	for name, test := range map[string]struct {
		requests []resourcev1.DeviceRequest
		fault    string
	}{
		"zero":     {of.list(of.exactly("gpu", driver, "milli=0")), exact + ".milli is 0" + amount},
		"negative": {of.list(of.exactly("gpu", driver, "milli=-1")), exact + ".milli is -1" + amount},
		"parts":    {of.list(of.exactly("gpu", driver, "milli=500m")), exact + ".milli is 500m" + amount},
		"over":     {of.list(of.exactly("gpu", driver, "milli=1001")), exact + ".milli is 1001" + amount},
		"two":      {of.list(of.exactly("gpu", driver, "milli=2k")), exact + ".milli is 2k" + amount},
		"huge":     {of.list(of.exactly("gpu", driver, "milli=100E")), exact + ".milli is 100E" + amount},
		"memory": {
			of.list(of.exactly("gpu", driver, "memory=10Gi,milli=250")),
			exact + ".memory fits no card: claims take thousandths of one. Write milli, by product: docs/howto/gpu-sharing.md",
		},
		"cores":     {of.list(of.exactly("gpu", driver, "milli=250,cores=50")), exact + ".cores fits no card. Write milli, the thousandths of a card"},
		"qualified": {of.list(of.exactly("gpu", driver, "gpu.tautline.io/milli=250")), exact + ".gpu.tautline.io/milli fits no card. Write milli"},
		"mig":       {of.list(of.exactly("gpu", mig, "milli=125")), exact + ": a MIG instance is given whole. Leave capacity out, and select the profile"},
		"last":      {of.list(card, of.exactly("gpu", driver, "milli=0")), exact + ".milli is 0"},
		"alternative": {
			of.list(card, of.first("gpu", of.sub("nvidia", "gpu.nvidia.com", "memory=1Gi"), of.sub("l4", driver, "milli=445"), of.sub("h200", driver, "milli=1072"))),
			"[gpu].firstAvailable[h200].capacity.requests.milli is 1072" + amount,
		},
		"many": {of.many(driver, func(i, j int) string {
			if i == 31 && j == 7 {
				return "milli=0"
			}
			return "milli=1"
		}), "[r31].firstAvailable[a7].capacity.requests.milli is 0" + amount},
	} {
		claim, template := create(name, spec(test.requests...))
		for field, err := range map[string]error{"spec": claim, "spec.spec": template} {
			if want := ": " + field + ".devices.requests" + test.fault; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v\nwant %s", name, err, want)
			}
		}
	}
	// kube-scheduler claims a whole card for the extended resource.
	extended := of.exactly("container-0-request-0", driver, "")
	extended.Exactly.AllocationMode, extended.Exactly.Count = resourcev1.DeviceAllocationModeExactCount, 2
	empty := of.exactly("gpu", mig, "")
	empty.Exactly.Capacity = new(resourcev1.CapacityRequirements)
	one := func(int, int) string { return "milli=1" }
	for name, requests := range map[string][]resourcev1.DeviceRequest{
		"none": nil, "empty": of.list(empty), "whole": of.list(card), "extended": of.list(extended), "instance": of.list(of.exactly("gpu", mig, "")),
		"least": of.list(of.exactly("gpu", driver, "milli=1")), "most": of.list(of.exactly("gpu", driver, "milli=1000")),
		"other": of.list(of.exactly("gpu", "gpu.nvidia.com", "milli=0,memory=10Gi,cores=1")),
		"mixed": of.list(of.first("gpu", of.sub("nvidia", "gpu.nvidia.com", "memory=1Gi"), of.sub("l4", driver, "milli=445"), of.sub("part", mig, ""))),
		// The largest claims are within the API server's limits of cost.
		"largest": of.many(driver, one), "largest-instances": of.many(mig, func(int, int) string { return "" }),
		"largest-other": of.many("gpu.nvidia.com", func(int, int) string { return "memory=1Gi,cores=1,milli=0" }),
	} {
		claim, template := create("good-"+name, spec(requests...))
		if claim != nil || template != nil {
			t.Errorf("%s: %v, %v", name, claim, template)
		}
	}

	// A claim that exists is not judged again: one that came before the policy can be labelled.
	_, err := claims.Patch(t.Context(), "good-whole", types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`), metav1.PatchOptions{})
	check(t, err)
}

// The class gpu.tautline.io has cards, as the extended resource does, and mig.gpu.tautline.io has instances: of
// devices that all fit kube-scheduler takes the first, and the policy of claims lets it claim.
func TestGPUClasses(t *testing.T) {
	plane := startGPUPlane(t, dra)
	var of claimRequests
	node, shared, profile, thousand := "node-a", true, "1g.10gb", resource.MustParse("1k")
	card := func(name string) resourcev1.Device {
		return resourcev1.Device{
			Name: name, AllowMultipleAllocations: &shared,
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"milli": {
				Value: thousand, RequestPolicy: &resourcev1.CapacityRequestPolicy{Default: &thousand},
			}},
		}
	}
	instance := func(name string) resourcev1.Device {
		return resourcev1.Device{
			Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"profile": {StringValue: &profile}},
		}
	}
	for i, devices := range [][]resourcev1.Device{
		{card("card-a"), instance("instance-a"), instance("instance-b"), card("card-b")}, {{Name: "other"}},
	} {
		_, err := plane.clients.ResourceV1().ResourceSlices().Create(t.Context(), &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("slice-%d", i)},
			Spec: resourcev1.ResourceSliceSpec{
				Driver: []string{driver, "gpu.nvidia.com"}[i], NodeName: &node,
				Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1}, Devices: devices,
			},
		}, metav1.CreateOptions{})
		check(t, err)
	}
	plane.start(t, "kube-scheduler", "--config="+plane.write(t, "scheduler.yaml", fmt.Appendf(nil, `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q}
`, plane.writeKubeconfig(t, "admin", "admin"))), "--secure-port=0")

	pods, claims := plane.clients.CoreV1().Pods("default"), plane.clients.ResourceV1().ResourceClaims("default")
	create := func(name string, change func(*corev1.PodSpec)) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		change(&pod.Spec)
		_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
		check(t, err)
	}
	for name, request := range map[string]resourcev1.DeviceRequest{
		"part": of.exactly("gpu", driver, "milli=250"), "instance": of.exactly("gpu", "mig."+driver, ""),
	} {
		_, err := claims.Create(t.Context(), &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: of.list(request)}},
		}, metav1.CreateOptions{})
		check(t, err)
		create(name, func(spec *corev1.PodSpec) {
			spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
			spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		})
	}
	create("whole", func(spec *corev1.PodSpec) {
		spec.Containers[0].Resources.Limits = corev1.ResourceList{"tautline.io/gpu": resource.MustParse("1")}
	})
	devices := map[string]string{}
	eventually(t, "all claims are allocated", func() error {
		list, err := claims.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		clear(devices)
		for _, claim := range list.Items {
			if claim.Status.Allocation != nil && len(claim.Status.ReservedFor) == 1 {
				devices[claim.Status.ReservedFor[0].Name] = claim.Status.Allocation.Devices.Results[0].Device
			}
		}
		if len(devices) < 3 {
			return fmt.Errorf("%v", devices)
		}
		return nil
	})
	for pod, kind := range map[string]string{"instance": "instance-", "part": "card-", "whole": "card-"} {
		if !strings.HasPrefix(devices[pod], kind) {
			t.Errorf("pod %s has the device %s", pod, devices[pod])
		}
	}
	if devices["whole"] == devices["part"] {
		t.Errorf("two pods have the card %s, of which one wants all", devices["whole"])
	}
}

// claimRequests makes requests; amounts are written NAME=QUANTITY, with commas between them.
type claimRequests struct{}

func (claimRequests) list(requests ...resourcev1.DeviceRequest) []resourcev1.DeviceRequest {
	return requests
}

func (claimRequests) amounts(text string) *resourcev1.CapacityRequirements {
	if text == "" {
		return nil
	}
	requests := map[resourcev1.QualifiedName]resource.Quantity{}
	for amount := range strings.SplitSeq(text, ",") {
		name, quantity, _ := strings.Cut(amount, "=")
		requests[resourcev1.QualifiedName(name)] = resource.MustParse(quantity)
	}
	return &resourcev1.CapacityRequirements{Requests: requests}
}

func (c claimRequests) exactly(name, class, amounts string) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, Capacity: c.amounts(amounts)}}
}

func (c claimRequests) sub(name, class, amounts string) resourcev1.DeviceSubRequest {
	return resourcev1.DeviceSubRequest{Name: name, DeviceClassName: class, Capacity: c.amounts(amounts)}
}

func (claimRequests) first(name string, alternatives ...resourcev1.DeviceSubRequest) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Name: name, FirstAvailable: alternatives}
}

// many is as many requests with as many alternatives as a claim may have.
func (c claimRequests) many(class string, amounts func(i, j int) string) []resourcev1.DeviceRequest {
	requests := make([]resourcev1.DeviceRequest, resourcev1.DeviceRequestsMaxSize)
	for i := range requests {
		alternatives := make([]resourcev1.DeviceSubRequest, resourcev1.FirstAvailableDeviceRequestMaxSize)
		for j := range alternatives {
			alternatives[j] = c.sub(fmt.Sprintf("a%d", j), class, amounts(i, j))
		}
		requests[i] = c.first(fmt.Sprintf("r%d", i), alternatives...)
	}
	return requests
}
