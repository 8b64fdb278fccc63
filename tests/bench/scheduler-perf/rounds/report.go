package main

import (
	"fmt"
	"os"
	"strings"
)

// Goal is a required ratio of two cases.
type Goal struct {
	what, name string
	to         func(f *Figures, nodes int) string
	// least ratio by size; a size without one has no goal.
	least map[int]float64
}

func always(name string) func(*Figures, int) string {
	return func(*Figures, int) string { return name }
}

var goals = []Goal{
	{"governed, of the floor with one name", "governed", always("floor-one"), nil},
	{"decisive, of the floor with one name", "governed-decisive", always("floor-one"), nil},
	{"shortlist, of the floor with 64 names", "governed-shortlist", always("floor"), map[int]float64{500: 0.85, 5000: 0.85}},
	{"governed, of shortlist", "governed", always("governed-shortlist"), map[int]float64{500: 1, 5000: 1}},
	{"the floor, two providers asked, of the floor", "floor-asking", always("floor"), nil},
	{"governed, of the no-op in Go", "governed", always("go-noop"), map[int]float64{500: 1, 5000: 1}},
	{"governed, of no extender", "governed", always("bare"), map[int]float64{500: 0.85, 5000: 0.95}},
	{"nodes within the request tie, of one node back", "governed-ties", always("governed-cached"), nil},
	{"decisive, of no extender", "governed-decisive", always("bare"), map[int]float64{500: 0.85, 5000: 0.95}},
	{"the floor with one name, of no extender", "floor-one", always("bare"), nil},
	{"not governed, of the faster no-op", "ungoverned", func(f *Figures, nodes int) string { return f.faster("go-noop", "rust-noop", nodes) }, map[int]float64{500: 0.95, 5000: 0.95}},
	{"the no-op in Rust, two processes watch pods, of that without", "noop-watched", always("rust-noop"), nil},
	{"not governed, of that", "ungoverned", always("noop-watched"), nil},
	{"behind the gate, of the no-op behind it", "gated", always("gated-noop"), map[int]float64{500: 0.97, 5000: 0.97}},
	{"the no-op behind it, two processes watch pods, of that without", "gated-watched", always("gated-noop"), nil},
	{"behind the gate, of that", "gated", always("gated-watched"), nil},
	{"behind the gate, of no extender", "gated", always("bare"), nil},
	{"governed, Tautline binds, of no extender", "governed-bind", always("bare"), map[int]float64{500: 0.75, 5000: 0.80}},
	{"governed, pods claim cards, of no extender with such pods", "dra", always("dra-bare"), nil},
	{"governed, pods claim cards, of Tautline binds", "dra", always("governed-bind"), nil},
}

const (
	begins = "<!-- tests/bench/scheduler-perf begins -->"
	ends   = "<!-- tests/bench/scheduler-perf ends -->"
)

// report is the text of the figures for the documents.
func (f *Figures) report() string {
	var text strings.Builder
	sizes := f.sizes()
	fmt.Fprintf(&text, "%d rounds; Kubernetes %s, etcd %s, %s; %s, %s cores, %s. Medians over the rounds that a case is in.\n",
		len(f.Rounds), f.Versions["kubernetes"], f.Versions["etcd"], f.Versions["go"],
		f.Machine["processor"], f.Machine["cores"], f.Machine["memory"])
	text.WriteString("\n![Pods a second of each case](scheduler-perf.svg)\n" +
		"\nAll figures: [results.json](../tests/bench/scheduler-perf/results.json).\n")

	head, rule := "| |", "|---|"
	for _, nodes := range sizes {
		head += fmt.Sprintf(" pods/s, %d nodes | of no extender |", nodes)
		rule += "---|---|"
	}
	fmt.Fprintf(&text, "\n%s\n%s\n", head, rule)
	for _, c := range cases {
		row, seen := "| "+c.title+" |", false
		for _, nodes := range sizes {
			rates := f.of(c.name, nodes, throughput)
			seen = seen || len(rates) > 0
			row += cells(rates, "%.0f") + cells(f.ratios(c.name, "bare", nodes), "%.2f")
		}
		if seen {
			fmt.Fprintln(&text, row)
		}
	}

	fmt.Fprintf(&text, "\n%s", f.table("throughput", sizes))
	if even := f.atOnePace(); even != nil {
		for _, nodes := range sizes {
			fmt.Fprintf(&text, "\n%s", f.pace(nodes))
		}
		fmt.Fprintf(&text, "\n%s", even.table("throughput at one pace", sizes))
	}

	fmt.Fprintf(&text, "\n%s", f.filterTime(sizes))
	for _, nodes := range sizes {
		fmt.Fprintf(&text, "\n%s", f.processorTime(nodes))
	}
	return text.String()
}

// table of the goals.
func (f *Figures) table(of string, sizes []int) string {
	var text strings.Builder
	head, rule := "| "+of+" | to be at least |", "|---|---|"
	for _, nodes := range sizes {
		head += fmt.Sprintf(" %d nodes |", nodes)
		rule += "---|"
	}
	fmt.Fprintf(&text, "%s\n%s\n", head, rule)
	for _, goal := range goals {
		row := f.against(goal, sizes)
		if strings.Trim(row, " -|") != "" {
			fmt.Fprintf(&text, "| %s | %s |%s\n", goal.what, goal.bound(sizes), row)
		}
	}
	return text.String()
}

func cells(values []float64, format string) string {
	if len(values) == 0 {
		return " - |"
	}
	return " " + fmt.Sprintf(format, median(values)) + " |"
}

func (g Goal) bound(sizes []int) string {
	var bounds []string
	for _, nodes := range sizes {
		if least, found := g.least[nodes]; found {
			bounds = append(bounds, fmt.Sprintf("%.2f", least))
		} else {
			bounds = append(bounds, "-")
		}
	}
	if len(bounds) == 2 && bounds[0] == bounds[1] {
		return bounds[0]
	}
	return strings.Join(bounds, "; ")
}

// against returns the cells of a goal: the median of the ratios, its interval, and
// whether the goal is met.
func (f *Figures) against(g Goal, sizes []int) string {
	var row string
	for _, nodes := range sizes {
		ratios := f.ratios(g.name, g.to(f, nodes), nodes)
		if len(ratios) == 0 {
			row += " - |"
			continue
		}
		row += fmt.Sprintf(" %.3f", median(ratios))
		if low, high, found := interval(ratios); found {
			row += fmt.Sprintf(" (%.3f to %.3f)", low, high)
		}
		if least, found := g.least[nodes]; found && median(ratios) < least {
			row += ", **missed**"
		}
		row += " |"
	}
	return row
}

// filterTime is a table of the mean time of a filter call by case.
func (f *Figures) filterTime(sizes []int) string {
	head, rule := "| filter, mean us |", "|---|"
	for _, nodes := range sizes {
		head += fmt.Sprintf(" %d nodes |", nodes)
		rule += "---|"
	}
	text := head + "\n" + rule + "\n"
	for _, c := range cases {
		row, seen := "| "+c.title+" |", false
		for _, nodes := range sizes {
			micros := f.of(c.name, nodes, func(r Result) float64 { return r.FilterMicros })
			seen = seen || median(micros) > 0
			row += cells(micros, "%.0f")
		}
		if seen {
			text += row + "\n"
		}
	}
	return text
}

// processorTime is a table of processor time by process and case.
func (f *Figures) processorTime(nodes int) string {
	processes := f.processes()
	var text strings.Builder
	fmt.Fprintf(&text, "| CPU a pod, us, %d nodes | %s | all |\n|---|%s---|\n", nodes,
		strings.Join(processes, " | "), strings.Repeat("---|", len(processes)))
	for _, c := range cases {
		if len(f.of(c.name, nodes, throughput)) == 0 {
			continue
		}
		row, sum := "| "+c.title+" |", 0.0
		for _, process := range processes {
			micros := median(f.of(c.name, nodes, func(r Result) float64 { return r.MicrosPerPod[process] }))
			sum += micros
			if micros == 0 {
				row += " - |"
			} else {
				row += fmt.Sprintf(" %.0f |", micros)
			}
		}
		fmt.Fprintf(&text, "%s %.0f |\n", row, sum)
	}
	return text.String()
}

// between replaces the text between the marks of a page.
func between(path, report string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begun := strings.Cut(string(page), begins)
	_, after, ended := strings.Cut(rest, ends)
	if !begun || !ended {
		return fmt.Errorf("%s: the marks %s and %s are missing", path, begins, ends)
	}
	return os.WriteFile(path, []byte(before+begins+"\n"+report+ends+after), 0o644)
}
