package harness

import (
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claim of a measured pod that has an amount of a node's first card; without a node it is not allocated.
func claim(pod, node string, amount int64) resourceapi.ResourceClaim {
	controller := true
	claim := resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace:       measured,
		Name:            pod + "-gpu",
		OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: pod, Controller: &controller}},
	}}
	if node != "" {
		claim.Status.Allocation = &resourceapi.AllocationResult{}
		claim.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{{
			Driver: driver, Pool: node, Device: "gpu-0", Request: "gpu",
			ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{milli: *quantity(amount)},
		}}
	}
	return claim
}

func TestCheckClaims(t *testing.T) {
	full := []resourceapi.ResourceClaim{}
	nodes := map[string]string{}
	for i := range 4 {
		pod := fmt.Sprintf("client-%d", i)
		full, nodes[pod] = append(full, claim(pod, "n1", 250)), "n1"
	}
	for _, run := range []struct {
		name   string
		claims []resourceapi.ResourceClaim
		fault  string
	}{
		{"a full card", full, ""},
		{"one more than a card has", append(full[:4:4], claim("other", "n1", 1)), "1001 of 1000 of card n1/gpu-0"},
		{"no amount", append(full[:3:3], claim("client-3", "n1", 0)), "client-3-gpu has nothing of card n1/gpu-0"},
		{"not allocated", append(full[:3:3], claim("client-3", "", 0)), "3 of 4 pods"},
		{"another node than the pod's", append(full[:3:3], claim("client-3", "n2", 250)), "3 of 4 pods"},
	} {
		err := checkClaims(run.claims, nodes)
		if (err == nil) != (run.fault == "") || err != nil && !strings.Contains(err.Error(), run.fault) {
			t.Errorf("%s: %v", run.name, err)
		}
	}
}

func TestSliceOf(t *testing.T) {
	slice := sliceOf("n1")
	if slice.Name != "n1-gpu.tautline.io-0" || len(slice.Spec.Devices) != cardsOfNode {
		t.Errorf("%v", slice)
	}
	for i, device := range slice.Spec.Devices {
		if device.Name != fmt.Sprintf("gpu-%d", i) || *device.Attributes["index"].IntValue != int64(i) {
			t.Errorf("device %d: %v", i, device)
		}
	}
}
