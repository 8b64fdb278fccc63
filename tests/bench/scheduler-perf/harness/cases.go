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

// Case is a set of servers beside the scheduler, and what must be observed.
type Case struct {
	Name string
	// Tautline: its CRDs and offers are installed.
	Tautline bool
	// Governed: an offer selects the pods.
	Governed bool
	// Policies that the offer names; by default near-server and shared-card.
	Policies []string
	// Asked: the scheduler calls the extender.
	Asked bool
	// Decides: the extender may answer with one node, which the scheduler takes without
	// scoring and without a second call.
	Decides bool
	// Binds: the extender binds.
	Binds bool
	// Claims: pods claim quarters of the cards of ResourceSlices (DRA).
	Claims bool
	// Counts is the URL of the extender's metrics; empty without an extender.
	Counts    string
	server    func(bin binaries) []string
	providers func(bin binaries) []provider
}

// Cases in the order of the report.
var Cases = []Case{
	{Name: "bare"},
	{Name: "go-noop", Asked: true, Counts: extenderURL, server: goNoop},
	{Name: "rust-noop", Asked: true, Counts: extenderURL, server: rustNoop("0")},
	{Name: "floor", Asked: true, Counts: extenderURL, server: rustNoop("64")},
	{Name: "floor-one", Asked: true, Decides: true, Counts: extenderURL, server: rustNoop("1")},
	{Name: "floor-asking", Asked: true, Counts: extenderURL, server: rustNoop("64", "18901", "18911"), providers: knowNothing},
	{Name: "noop-watched", Asked: true, Counts: extenderURL, server: rustNoop("0"), providers: watchers},
	{Name: "governed", Tautline: true, Governed: true, Asked: true, Decides: true, Counts: adminURL, server: extender(), providers: rules},
	{Name: "governed-cached", Tautline: true, Governed: true, Asked: true, Decides: true, Policies: []string{"near-server"}, Counts: adminURL, server: extender("--answer", "decisive"), providers: rules},
	{Name: "governed-ties", Tautline: true, Governed: true, Asked: true, Policies: []string{"within-request"}, Counts: adminURL, server: extender(), providers: rules},
	{Name: "governed-decisive", Tautline: true, Governed: true, Asked: true, Decides: true, Counts: adminURL, server: extender("--answer", "decisive"), providers: rules},
	{Name: "governed-shortlist", Tautline: true, Governed: true, Asked: true, Counts: adminURL, server: extender("--answer", "shortlist"), providers: rules},
	{Name: "governed-bind", Tautline: true, Governed: true, Asked: true, Decides: true, Binds: true, Counts: adminURL, server: extender("--bind"), providers: rules},
	{Name: "dra-bare", Claims: true},
	{Name: "dra", Tautline: true, Governed: true, Asked: true, Decides: true, Claims: true, Counts: adminURL, server: extender(), providers: rules},
	{Name: "ungoverned", Tautline: true, Asked: true, Counts: adminURL, server: extender(), providers: rules},
	{Name: "gated-noop", Counts: extenderURL, server: goNoop},
	{Name: "gated-watched", Tautline: true, Counts: extenderURL, server: goNoop, providers: watchers},
	{Name: "gated", Tautline: true, Counts: adminURL, server: extender(), providers: rules},
}

// policies that the offer of a case names.
func (c Case) policies() []string {
	if c.Policies == nil {
		return []string{"near-server", "shared-card"}
	}
	return c.Policies
}

// rule returns the rule of a policy of cluster/policies.yaml.
func rule(policy string) string {
	if policy == "shared-card" {
		return "gpu-slice"
	}
	return "latency"
}

// Find returns the case with a name.
func Find(name string) (Case, bool) {
	for _, c := range Cases {
		if c.Name == name {
			return c, true
		}
	}
	return Case{}, false
}

// caseOf returns the case of a benchmark named BENCHMARK/CASE/NODES.
func caseOf(benchmark string) (Case, bool) {
	parts := strings.Split(benchmark, "/")
	if len(parts) < 2 {
		return Case{}, false
	}
	return Find(parts[1])
}

// binaries that cases start.
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
			// The API server accepts no loopback address in an EndpointSlice.
			"--external-name-providers", "any"}
		return append(args, more...)
	}
}

// provider is a rule provider's process.
type provider struct {
	name string
	args []string
	// admin is the URL of its readiness.
	admin string
}

// knowNothing are providers with a made-up cost for each node.
func knowNothing(bin binaries) []provider {
	return []provider{
		{"provider 1", []string{bin.rustNoop, "provide", "18901", "18902"}, "http://127.0.0.1:18902"},
		{"provider 2", []string{bin.rustNoop, "provide", "18911", "18912"}, "http://127.0.0.1:18912"},
	}
}

// watchers read pod events as the extender and gpu-slice do, and drop them.
func watchers(bin binaries) []provider {
	watch := func(name, address string) provider {
		return provider{name, []string{bin.goNoop, "watch", address}, "http://" + address}
	}
	return []provider{watch("watcher 1", "127.0.0.1:18921"), watch("watcher 2", "127.0.0.1:18922")}
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
