package harness

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
)

// Stopwatch is a scheduler plugin that records when each measured pod is bound.
// scheduler_perf itself samples once a second, which is too coarse for short runs.
type Stopwatch struct {
	mutex sync.Mutex
	bound []time.Time
	// Processor time at the first and at the last binding.
	from, to usage
	children func() usage
	pods     int
}

const stopwatchName = "Stopwatch"

func (*Stopwatch) Name() string { return stopwatchName }

// New is the factory that the scheduler calls.
func (s *Stopwatch) New(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return s, nil
}

// start expects the given number of pods; children returns the case's processes.
func (s *Stopwatch) start(pods int, children func() usage) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.pods, s.children, s.bound = pods, children, make([]time.Time, 0, pods)
}

// PostBind is called after a pod is bound, by the scheduler or by an extender.
func (s *Stopwatch) PostBind(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	if pod.Namespace != measured {
		return
	}
	now := time.Now()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.bound = append(s.bound, now)
	switch len(s.bound) {
	case 1:
		s.from = s.children()
	case s.pods:
		s.to = s.children()
	}
}

// taken is the stopwatch's result after all pods are bound.
type taken struct {
	podsPerSecond float64
	first, last   time.Time
	// microsPerPod is the processor time of each process per pod.
	microsPerPod map[string]float64
}

// read returns the figures from the first binding to the last.
func (s *Stopwatch) read() (taken, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.bound) != s.pods || s.pods < 2 {
		return taken{}, fmt.Errorf("%d bindings were seen, not %d", len(s.bound), s.pods)
	}
	first, last := slices.MinFunc(s.bound, time.Time.Compare), slices.MaxFunc(s.bound, time.Time.Compare)
	intervals := float64(s.pods - 1)
	cpu := map[string]float64{}
	for name, before := range s.from {
		cpu[name] = float64((s.to[name] - before).Microseconds()) / intervals
	}
	return taken{intervals / last.Sub(first).Seconds(), first, last, cpu}, nil
}
