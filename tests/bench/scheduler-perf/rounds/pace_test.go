package main

import (
	"math"
	"testing"
)

// Two cases, of which one has 0.8 of the other's throughput, on a machine whose pace is
// never the same.
func TestPaceIsTakenOut(t *testing.T) {
	var figures Figures
	for i := range 9 {
		run := func(name string, full, pace float64) Result {
			return Result{Case: name, Nodes: 500, PodsPerSecond: full * math.Pow(pace/100, -0.7), PaceMicros: pace}
		}
		figures.Rounds = append(figures.Rounds, []Result{
			run("floor", 300, 100+10*float64(i)),
			run("governed", 240, 200-7*float64(i*i%5)),
		})
	}
	found, ok := figures.followsPace(500)
	if !ok || math.Abs(found.slope+0.7) > 1e-9 || math.Abs(found.explained-1) > 1e-9 {
		t.Errorf("%+v, %v", found, ok)
	}
	for _, ratio := range figures.atOnePace().ratios("governed", "floor", 500) {
		if math.Abs(ratio-0.8) > 1e-9 {
			t.Errorf("%v of the floor, not 0.8", ratio)
		}
	}
	figures.Rounds[0][0].PaceMicros = 0
	if figures.atOnePace() != nil {
		t.Error("a run without a pace was taken")
	}
}
