// Package harness runs Kubernetes' own scheduler benchmark with an extender
// beside it: it starts the servers of a case, times the bindings, and sees that
// the case was what it says it is.
package harness

import (
	"path/filepath"
	"strings"
)

// Pods that an offer of a case selects carry this label, as cluster/pod.yaml has it.
const podApp = "client"

// The ports of the files in scheduler/ and cluster/.
const (
	extenderURL = "http://127.0.0.1:18888"
	adminURL    = "http://127.0.0.1:18889"
)

// Case is what runs beside the scheduler, and what must be seen of it.
type Case struct {
	Name string
	// Tautline is whether its kinds, offers and providers are there.
	Tautline bool
	// Governed is whether an offer selects the pods.
	Governed bool
	// Asked is whether the scheduler calls the extender.
	Asked bool
	// Binds is whether the extender binds.
	Binds bool
	// Counts is where the extender's metrics are; empty: there is no extender.
	Counts string
	server func(bin binaries) []string
}

// Cases are all cases, in the order in which they are reported.
var Cases = []Case{
	{Name: "bare"},
	{Name: "go-noop", Asked: true, Counts: extenderURL, server: goNoop},
	{Name: "rust-noop", Asked: true, Counts: extenderURL, server: rustNoop("0")},
	{Name: "floor", Asked: true, Counts: extenderURL, server: rustNoop("64")},
	{Name: "governed", Tautline: true, Governed: true, Asked: true, Counts: adminURL, server: extender()},
	{Name: "governed-bind", Tautline: true, Governed: true, Asked: true, Binds: true, Counts: adminURL, server: extender("--bind")},
	{Name: "ungoverned", Tautline: true, Asked: true, Counts: adminURL, server: extender()},
	{Name: "gated-noop", Counts: extenderURL, server: goNoop},
	{Name: "gated", Tautline: true, Counts: adminURL, server: extender()},
}

// Find is the case of a name.
func Find(name string) (Case, bool) {
	for _, c := range Cases {
		if c.Name == name {
			return c, true
		}
	}
	return Case{}, false
}

// caseOf is the case that a benchmark named BENCHMARK/CASE/NODES runs.
func caseOf(benchmark string) (Case, bool) {
	parts := strings.Split(benchmark, "/")
	if len(parts) < 2 {
		return Case{}, false
	}
	return Find(parts[1])
}

// binaries are what a case starts.
type binaries struct{ tautline, rustNoop, goNoop string }

func built(root, noop string) binaries {
	release := filepath.Join(root, "target", "release")
	return binaries{
		tautline: filepath.Join(release, "tautline"),
		rustNoop: filepath.Join(release, "tautline-bench-extender"),
		goNoop:   noop,
	}
}

func goNoop(bin binaries) []string { return []string{bin.goNoop} }

func rustNoop(shortlist string) func(binaries) []string {
	return func(bin binaries) []string {
		return []string{bin.rustNoop, "noop", "18888", shortlist}
	}
}

func extender(more ...string) func(binaries) []string {
	return func(bin binaries) []string {
		args := []string{bin.tautline, "extender", "--listen", "127.0.0.1:18888", "--admin", "127.0.0.1:18889"}
		return append(args, more...)
	}
}

// providers are the rule providers, and where each says that it is ready.
func providers(bin binaries) map[string][]string {
	return map[string][]string{
		"http://127.0.0.1:18902": {bin.tautline, "provider", "gpu-slice", "--listen", "127.0.0.1:18901", "--admin", "127.0.0.1:18902"},
		"http://127.0.0.1:18912": {bin.tautline, "provider", "latency", "--listen", "127.0.0.1:18911", "--admin", "127.0.0.1:18912"},
	}
}
