package main

import (
	"fmt"
	"math"
	"slices"
)

// follows is the dependency of throughput on the machine's pace: the exponent of a power
// law, by least squares over the runs of a size, relative to the mean of each case; and
// the share of the variance within the cases that it explains.
type follows struct {
	slope, explained float64
	// paces of the runs, sorted.
	paces []float64
}

// followsPace is not defined if a run has no pace, or if all paces are equal.
func (f *Figures) followsPace(nodes int) (follows, bool) {
	var xx, xy, yy float64
	var paces []float64
	for _, name := range names() {
		x := f.of(name, nodes, func(r Result) float64 { return math.Log(r.PaceMicros) })
		y := f.of(name, nodes, func(r Result) float64 { return math.Log(r.PodsPerSecond) })
		for i := range x {
			dx, dy := x[i]-mean(x), y[i]-mean(y)
			xx, xy, yy = xx+dx*dx, xy+dx*dy, yy+dy*dy
			paces = append(paces, math.Exp(x[i]))
		}
	}
	slices.Sort(paces)
	if len(paces) == 0 || paces[0] == 0 || xx == 0 || yy == 0 {
		return follows{}, false
	}
	return follows{slope: xy / xx, explained: xy * xy / (xx * yy), paces: paces}, true
}

// atOnePace are the figures corrected to one pace of the machine for all runs of a size.
func (f *Figures) atOnePace() *Figures {
	even := *f
	even.Rounds = nil
	by := map[int]follows{}
	for _, nodes := range f.sizes() {
		found, ok := f.followsPace(nodes)
		if !ok {
			return nil
		}
		by[nodes] = found
	}
	for _, round := range f.Rounds {
		round = slices.Clone(round)
		for i, r := range round {
			found := by[r.Nodes]
			round[i].PodsPerSecond *= math.Pow(r.PaceMicros/median(found.paces), -found.slope)
		}
		even.Rounds = append(even.Rounds, round)
	}
	return &even
}

// pace reports how much of the variance is due to the machine.
func (f *Figures) pace(nodes int) string {
	found, _ := f.followsPace(nodes)
	n := len(found.paces)
	return fmt.Sprintf("At %d nodes the machine's pace was %.0f us, %.0f to %.0f in nine of ten runs; throughput goes "+
		"with its power %.2f, which explains %.0f %% of what differs between the runs of a case (variance).\n",
		nodes, median(found.paces), found.paces[n/20], found.paces[n-1-n/20], found.slope, 100*found.explained)
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum / float64(len(values))
}
