package harness

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// The driver of the claimed cards, which is also the domain of their attributes.
const driver = "gpu.tautline.io"

// The capacity that claims take of a card, and how much of it a card has.
const (
	milli    = "milli"
	fullCard = 1000
)

// The cards of a node and the memory of each in bytes: L4s, as cluster/claiming-node.yaml says.
const (
	cardsOfNode  = 8
	memoryOfCard = 23034 << 20
)

// publish creates the class of the cards, the claim templates, and the ResourceSlices of all nodes,
// as the nodes' agents would.
func publish(tCtx ktesting.TContext, nodes *v1.NodeList) error {
	c := newCluster(tCtx)
	if err := c.file("cluster/device-class.yaml", ""); err != nil {
		return err
	}
	for _, namespace := range []string{warm, measured} {
		if err := c.file("cluster/claim-template.yaml", namespace); err != nil {
			return err
		}
	}
	slices := tCtx.Client().ResourceV1().ResourceSlices()
	for _, node := range nodes.Items {
		if _, err := slices.Create(tCtx, sliceOf(node.Name), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("ResourceSlice of %s: %w", node.Name, err)
		}
	}
	return nil
}

// sliceOf is the only slice of a node.
func sliceOf(node string) *resourceapi.ResourceSlice {
	shared := true
	devices := make([]resourceapi.Device, cardsOfNode)
	for i := range devices {
		index, uuid, product := int64(i), fmt.Sprintf("GPU-%s-%d", node, i), "NVIDIA L4"
		devices[i] = resourceapi.Device{
			Name:                     fmt.Sprintf("gpu-%d", i),
			AllowMultipleAllocations: &shared,
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"uuid":        {StringValue: &uuid},
				"index":       {IntValue: &index},
				"productName": {StringValue: &product},
			},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
				milli: {
					Value: *quantity(fullCard),
					RequestPolicy: &resourceapi.CapacityRequestPolicy{
						Default: quantity(fullCard),
						ValidRange: &resourceapi.CapacityRequestPolicyRange{
							Min: quantity(1), Max: quantity(fullCard), Step: quantity(1),
						},
					},
				},
				"memory": {
					Value: *quantity(memoryOfCard),
					RequestPolicy: &resourceapi.CapacityRequestPolicy{
						Default:     quantity(0),
						ValidValues: []resource.Quantity{*quantity(0)},
					},
				},
			},
		}
	}
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-" + driver + "-0"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver:   driver,
			NodeName: &node,
			Pool:     resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
			Devices:  devices,
		},
	}
}

func quantity(value int64) *resource.Quantity {
	return resource.NewQuantity(value, resource.DecimalSI)
}

// allocatedOnce checks that each measured pod has a share on its node, and that no card is shared
// beyond its capacity.
func allocatedOnce(tCtx ktesting.TContext, want int) error {
	var claims []resourceapi.ResourceClaim
	for _, namespace := range []string{warm, measured} {
		list, err := tCtx.Client().ResourceV1().ResourceClaims(namespace).List(tCtx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		claims = append(claims, list.Items...)
	}
	pods, err := tCtx.Client().CoreV1().Pods(measured).List(tCtx, metav1.ListOptions{LabelSelector: "app=" + podApp})
	if err != nil {
		return err
	}
	if len(pods.Items) != want {
		return fmt.Errorf("%d pods, not %d", len(pods.Items), want)
	}
	nodes := map[string]string{}
	for _, pod := range pods.Items {
		nodes[pod.Name] = pod.Spec.NodeName
	}
	return checkClaims(claims, nodes)
}

// checkClaims checks claims against the nodes of measured pods by the pods' names.
func checkClaims(claims []resourceapi.ResourceClaim, nodes map[string]string) error {
	used, served := map[string]int64{}, map[string]bool{}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			consumed := result.ConsumedCapacity[milli]
			card := result.Pool + "/" + result.Device
			used[card] += consumed.Value()
			if consumed.IsZero() {
				return fmt.Errorf("claim %s has nothing of card %s", claim.Name, card)
			}
			if used[card] > fullCard {
				return fmt.Errorf("claims have %d of %d of card %s", used[card], fullCard, card)
			}
			owner := metav1.GetControllerOfNoCopy(&claim)
			if claim.Namespace == measured && owner != nil && nodes[owner.Name] == result.Pool {
				served[owner.Name] = true
			}
		}
	}
	if len(served) != len(nodes) {
		return fmt.Errorf("%d of %d pods have a card on their node", len(served), len(nodes))
	}
	return nil
}
