package chart

import (
	"os"
	"os/exec"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// tautline knows all arguments of the containers. TAUTLINE names another binary than that of
// cargo build.
func TestArgumentsAreKnown(t *testing.T) {
	binary := os.Getenv("TAUTLINE")
	if binary == "" {
		binary = "../../target/debug/tautline"
	}
	if _, err := os.Stat(binary); err != nil {
		t.Skipf("%v: run cargo build", err)
	}
	for _, set := range []string{"", existing, everything, everything + existing, devicePlugin, dra} {
		all, _ := render(t, Release{KubeVersion: "v1.36.3"}, set)
		for key, object := range all {
			containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
			for _, container := range containers {
				args, found, err := unstructured.NestedStringSlice(container.(map[string]any), "args")
				check(t, err)
				if !found {
					continue
				}
				// Help comes after all errors of arguments before it.
				output, err := exec.CommandContext(t.Context(), binary, append(args, "--help")...).CombinedOutput()
				if err != nil {
					t.Errorf("%s: %v: %s", key, args, output)
				}
			}
		}
	}
}
