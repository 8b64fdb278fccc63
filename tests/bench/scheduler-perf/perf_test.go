// Package schedulerperf has the entry point for `go test`; the rest is in harness.
package schedulerperf

import (
	"flag"
	"fmt"
	"os"
	"testing"

	_ "k8s.io/component-base/logs/json/register"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"

	"tautline.io/bench-scheduler-perf/harness"
)

var run harness.Harness

func TestMain(m *testing.M) {
	flag.StringVar(&run.Root, "root", "../../..", "the repository")
	flag.StringVar(&run.Noop, "noop", "", "the no-op extender in Go")
	flag.StringVar(&run.Out, "out", "", "the file that the result goes to")
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// One case at a time: -bench '^BenchmarkPerfScheduling$/^governed$/^500$'.
func BenchmarkPerfScheduling(b *testing.B) {
	perf.RunBenchmarkPerfScheduling(b, "cases.yaml", "tautline", run.Plugins(), perf.WithNodeUpdateFn(run.NodesMade))
	if err := run.Write(flag.Lookup("data-items-dir").Value.String()); err != nil {
		b.Fatal(err)
	}
}
