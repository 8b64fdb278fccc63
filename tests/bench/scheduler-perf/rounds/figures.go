package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// Figures are all that was measured.
type Figures struct {
	Machine  map[string]string `json:"machine"`
	Versions map[string]string `json:"versions"`
	Rounds   [][]Result        `json:"rounds"`
}

// The cases, with their titles in tables and plot.
var cases = []struct{ name, title string }{
	{"bare", "no extender"},
	{"go-noop", "a no-op in Go"},
	{"rust-noop", "a no-op in Rust"},
	{"noop-watched", "the same, two processes watch pods"},
	{"floor", "the floor: a no-op in Rust, 64 names back"},
	{"floor-one", "a no-op in Rust, one name back"},
	{"floor-asking", "the floor, two providers asked"},
	{"governed", "Tautline, pods governed by 2 rules"},
	{"governed-cached", "Tautline, governed by latency alone, one node back"},
	{"governed-ties", "the same, nodes within the request tie"},
	{"governed-decisive", "Tautline, governed by 2 rules, one node back"},
	{"governed-shortlist", "the same, 64 nodes back"},
	{"governed-bind", "Tautline, governed pods, Tautline binds"},
	{"dra-bare", "no extender, pods claim quarters of cards"},
	{"dra", "Tautline, the same pods governed by 2 rules"},
	{"ungoverned", "Tautline, pods not governed"},
	{"gated-noop", "a no-op in Go behind the gate"},
	{"gated-watched", "the same, two processes watch pods"},
	{"gated", "Tautline behind the gate"},
}

func names() []string {
	var all []string
	for _, c := range cases {
		all = append(all, c.name)
	}
	return all
}

// of returns the figures of a case at a size, in the order of the rounds.
func (f *Figures) of(name string, nodes int, figure func(Result) float64) []float64 {
	var found []float64
	for _, round := range f.Rounds {
		for _, result := range round {
			if result.Case == name && result.Nodes == nodes {
				found = append(found, figure(result))
			}
		}
	}
	return found
}

func throughput(r Result) float64 { return r.PodsPerSecond }

// ratios of one case to another, for each round that has both.
func (f *Figures) ratios(name, to string, nodes int) []float64 {
	var found []float64
	for _, round := range f.Rounds {
		one := Figures{Rounds: [][]Result{round}}
		over, under := one.of(name, nodes, throughput), one.of(to, nodes, throughput)
		if len(over) > 0 && len(under) > 0 {
			found = append(found, over[0]/under[0])
		}
	}
	return found
}

// faster returns the one of two cases with the higher median.
func (f *Figures) faster(a, b string, nodes int) string {
	if median(f.of(a, nodes, throughput)) >= median(f.of(b, nodes, throughput)) {
		return a
	}
	return b
}

// sizes of the clusters, the smallest first.
func (f *Figures) sizes() []int {
	seen := map[int]bool{}
	for _, round := range f.Rounds {
		for _, result := range round {
			seen[result.Nodes] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// processes by processor time, the highest first.
func (f *Figures) processes() []string {
	most := map[string]float64{}
	for _, round := range f.Rounds {
		for _, result := range round {
			for name, micros := range result.MicrosPerPod {
				most[name] = max(most[name], micros)
			}
		}
	}
	return slices.SortedFunc(maps.Keys(most), func(a, b string) int { return cmp.Compare(most[b], most[a]) })
}

func line(micros map[string]float64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(micros)) {
		parts = append(parts, fmt.Sprintf("%s %.0f", name, micros[name]))
	}
	return strings.Join(parts, ", ")
}

// machine describes the machine that ran the benchmark.
func machine() map[string]string {
	field := func(path, name string) string {
		text, _ := os.ReadFile(path)
		for line := range strings.SplitSeq(string(text), "\n") {
			if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
				return strings.TrimSpace(value)
			}
		}
		return "unknown"
	}
	return map[string]string{
		"processor": field("/proc/cpuinfo", "model name"),
		"cores":     fmt.Sprint(runtime.NumCPU()),
		"memory":    field("/proc/meminfo", "MemTotal"),
		"kernel":    output("uname", "-sr"),
	}
}

// Versions are those of what is measured that the machine itself does not tell.
type Versions struct{ Kubernetes, Rust, Tautline string }

func (v Versions) all() map[string]string {
	etcd, _, _ := strings.Cut(output("etcd", "--version"), "\n")
	return map[string]string{
		"kubernetes": v.Kubernetes,
		"etcd":       strings.TrimPrefix(etcd, "etcd Version: "),
		"go":         runtime.Version(),
		"rust":       v.Rust,
		"tautline":   v.Tautline,
	}
}

func output(name string, args ...string) string {
	text, err := exec.Command(name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}
