package harness

import (
	"strings"
	"testing"
)

const page = `# TYPE tautline_extender_requests counter
tautline_extender_requests_total{verb="filter",status="200"} 3
tautline_extender_requests_total{verb="prioritize",status="200"} 2
tautline_extender_pods_total{outcome="placeable"} 2
tautline_extender_pods_total{outcome="rejected"} 1
tautline_extender_rejected_nodes_total{reason="latency/OverLimit"} 40
tautline_provider_calls_total{rule="latency",provider="tautline-system/tautline-latency",outcome="OK"} 3
tautline_provider_calls_total{rule="gpu-slice",provider="tautline-system/tautline-gpu-slice",outcome="OK"} 3
tautline_extender_request_seconds_bucket{le="0.00005",verb="filter"} 0
`

func TestCount(t *testing.T) {
	for _, run := range []struct{ name, old, new, fault string }{
		{"governed", "", "", ""},
		{"governed-shortlist", `prioritize",status="200"} 2`, `prioritize",status="200"} 1`, "1 prioritize requests"},
		{"governed", `prioritize",status="200"} 2`, `prioritize",status="200"} 0`, ""},
		{"governed", `filter",status="200"} 3`, `filter",status="200"} 1`, "1 filter requests"},
		{"governed", `outcome="placeable"} 2`, `outcome="ungoverned"} 2`, "not all pods were governed"},
		{"governed", "latency/OverLimit", "gpu-slice/GpuBusy", "no node was too far"},
		{"governed", `tautline-latency",outcome="OK"`, `tautline-latency",outcome="ProviderTimeout"`, "no provider answered for the rule latency"},
		{"governed", `# TYPE`, "tautline_extender_requests_total{verb=\"filter\",status=\"504\"} 1\n#", "filter 504"},
		{"governed-bind", "", "", "0 of 2 pods were bound"},
		{"ungoverned", "", "", "pods were governed"},
		{"gated", "", "", "outside its managed resources"},
		{"go-noop", "", "", ""},
		{"gated-noop", "", "", "outside its managed resources"},
	} {
		c, known := Find(run.name)
		if !known {
			t.Fatalf("no case %s", run.name)
		}
		var result Result
		err := result.count(strings.Replace(page, run.old, run.new, 1), c, 2)
		if (err == nil) != (run.fault == "") || err != nil && !strings.Contains(err.Error(), run.fault) {
			t.Errorf("%s with %q for %q: %v", run.name, run.new, run.old, err)
		}
	}
}
