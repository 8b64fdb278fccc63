package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// `tautline doctor` reads the chart's GPU agents at the API server: their rights, their class and their slices.
// TAUTLINE names another binary than that of cargo build.
func TestDoctorReadsGPUAgents(t *testing.T) {
	binary := os.Getenv("TAUTLINE")
	if binary == "" {
		binary = "../../target/debug/tautline"
	}
	if _, err := os.Stat(binary); err != nil {
		t.Skipf("%v: run cargo build", err)
	}
	plane := startGPUPlane(t, dra)
	kubeconfig := plane.writeKubeconfig(t, "doctor", plane.config.BearerToken)
	// The findings by code, each with its object and text.
	doctor := func() map[string]string {
		t.Helper()
		command := exec.CommandContext(t.Context(), binary, "doctor", "--kubeconfig="+kubeconfig, "-o", "json")
		// The exit code tells that there are problems, and here no pod runs.
		output, err := command.Output()
		var report struct {
			Findings []struct{ Check, Object, Text string }
		}
		if jsonErr := json.Unmarshal(output, &report); jsonErr != nil {
			t.Fatalf("%v: %v: %s", err, jsonErr, output)
		}
		found := map[string]string{}
		for _, finding := range report.Findings {
			found[finding.Check] += fmt.Sprintf("%s: %s\n", finding.Object, finding.Text)
		}
		return found
	}
	expect := func(found map[string]string, check, text string) {
		t.Helper()
		if !strings.Contains(found[check], text) {
			t.Errorf("%s is %q, without %q", check, found[check], text)
		}
	}

	healthy := doctor()
	expect(healthy, "GpuDelivery", "DaemonSet tautline-gpu-agent: DRA delivers cards, by --delivery=dra (v1.36")
	expect(healthy, "GpuCardsOffered", "in one way only")
	expect(healthy, "RightsGranted", "have the rights that they need most")

	plane.agentOn(t, "node-a")
	label := []byte(`{"metadata": {"labels": {"nvidia.com/gpu.count": "1"}}}`)
	_, err := plane.clients.CoreV1().Nodes().Patch(t.Context(), "node-a", types.MergePatchType, label, metav1.PatchOptions{})
	check(t, err)
	pod := []byte(`{"metadata": {"labels": {"app.kubernetes.io/name": "tautline-gpu-agent"}}}`)
	_, err = plane.clients.CoreV1().Pods("tautline-system").Patch(t.Context(), "agent-node-a", types.MergePatchType, pod, metav1.PatchOptions{})
	check(t, err)
	expect(doctor(), "GpuSlicesMissing", "1 node with cards (label nvidia.com/gpu.count) in spec.nodeName: node-a")

	node := "node-a"
	_, err = plane.clients.ResourceV1().ResourceSlices().Create(t.Context(), &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "gpu-0"}},
		},
	}, metav1.CreateOptions{})
	check(t, err)
	if found := doctor(); found["GpuSlicesMissing"] != "" {
		t.Error(found["GpuSlicesMissing"])
	}
	offered := []byte(`{"status": {"allocatable": {"tautline.io/gpu-milli": "1000"}, "capacity": {"tautline.io/gpu-milli": "1000"}}}`)
	_, err = plane.clients.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, offered, metav1.PatchOptions{}, "status")
	check(t, err)
	expect(doctor(), "GpuCardsTwice", "status.allocatable tautline.io/gpu-milli above 0: node-a")

	// Without its rights an agent writes no slice.
	check(t, plane.clients.RbacV1().ClusterRoleBindings().Delete(t.Context(), "tautline-gpu-agent", metav1.DeleteOptions{}))
	check(t, plane.clients.ResourceV1().DeviceClasses().Delete(t.Context(), driver, metav1.DeleteOptions{}))
	eventually(t, "the rights are missing", func() error {
		if found := doctor(); !strings.Contains(found["RightMissing"], "ServiceAccount tautline-system/tautline-gpu-agent") {
			return fmt.Errorf("%s", found["RightMissing"])
		}
		return nil
	})
	expect(doctor(), "DeviceClassMissing", "DeviceClass gpu.tautline.io: does not exist")
}
