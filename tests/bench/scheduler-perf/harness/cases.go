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
	// Tautline is whether its kinds and offers are there.
	Tautline bool
	// Governed is whether an offer selects the pods.
	Governed bool
	// Asked is whether the scheduler calls the extender.
	Asked bool
	// Binds is whether the extender binds.
	Binds bool
	// Counts is where the extender's metrics are; empty: there is no extender.
	Counts    string
	server    func(bin binaries) []string
	providers func(bin binaries) []provider
}

// Cases are all cases, in the order in which they are reported.
var Cases = []Case{
	{Name: "bare"},
	{Name: "go-noop", Asked: true, Counts: extenderURL, server: goNoop},
	{Name: "rust-noop", Asked: true, Counts: extenderURL, server: rustNoop("0")},
	{Name: "floor", Asked: true, Counts: extenderURL, server: rustNoop("64")},
	{Name: "floor-asking", Asked: true, Counts: extenderURL, server: rustNoop("64", "18901", "18911"), providers: knowNothing},
	{Name: "noop-watched", Asked: true, Counts: extenderURL, server: rustNoop("0"), providers: watcher},
	{Name: "governed", Tautline: true, Governed: true, Asked: true, Counts: adminURL, server: extender(), providers: rules},
	{Name: "governed-bind", Tautline: true, Governed: true, Asked: true, Binds: true, Counts: adminURL, server: extender("--bind"), providers: rules},
	{Name: "ungoverned", Tautline: true, Asked: true, Counts: adminURL, server: extender(), providers: rules},
	{Name: "gated-noop", Counts: extenderURL, server: goNoop},
	{Name: "gated-watched", Tautline: true, Counts: extenderURL, server: goNoop, providers: watcher},
	{Name: "gated", Tautline: true, Counts: adminURL, server: extender(), providers: rules},
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

func rustNoop(more ...string) func(binaries) []string {
	return func(bin binaries) []string {
		return append([]string{bin.rustNoop, "noop", "18888"}, more...)
	}
}

func extender(more ...string) func(binaries) []string {
	return func(bin binaries) []string {
		args := []string{bin.tautline, "extender", "--listen", "127.0.0.1:18888", "--admin", "127.0.0.1:18889",
			// The API server takes no loopback address in an EndpointSlice.
			"--external-name-providers", "any"}
		return append(args, more...)
	}
}

// provider is a process that answers the extender's questions.
type provider struct {
	name string
	args []string
	// admin is where it says that it is ready.
	admin string
}

// knowNothing are providers that have a cost for each node, out of nothing.
func knowNothing(bin binaries) []provider {
	return []provider{
		{"provider 1", []string{bin.rustNoop, "provide", "18901", "18902"}, "http://127.0.0.1:18902"},
		{"provider 2", []string{bin.rustNoop, "provide", "18911", "18912"}, "http://127.0.0.1:18912"},
	}
}

// watcher reads the events of pods that have a node and forgets them, as gpu-slice does; the
// extender is told of no pod that no offer selects.
func watcher(bin binaries) []provider {
	const address = "127.0.0.1:18921"
	return []provider{{"watcher", []string{bin.goNoop, "watch", address}, "http://" + address}}
}

// rules are the rule providers.
func rules(bin binaries) []provider {
	serve := func(name, listen, admin string) provider {
		args := []string{bin.tautline, "provider", name, "--listen", listen, "--admin", admin}
		return provider{name, args, "http://" + admin}
	}
	return []provider{
		serve("gpu-slice", "127.0.0.1:18901", "127.0.0.1:18902"),
		serve("latency", "127.0.0.1:18911", "127.0.0.1:18912"),
	}
}
