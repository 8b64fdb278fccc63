package tautline

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"tautline.io/sdk-go/ruleprovider"
)

func TestWatchNeedsChanges(t *testing.T) {
	server, _ := start(t, Provider{Costs: spread})
	watch(t, client(t, server)).awaitEnd("Unimplemented: method WatchCosts not implemented")
}

func TestWatchWaitsForLoad(t *testing.T) {
	loaded := make(chan struct{})
	defer close(loaded)
	server, _ := start(t, Provider{Costs: spread, Changes: NewChanges(), Load: func(context.Context) error { <-loaded; return nil }})
	awaitHealth(t, server, healthpb.HealthCheckResponse_NOT_SERVING)
	watch(t, ruleprovider.NewRuleProviderClient(dial(t, server.Addr()))).awaitEnd("Unavailable: not ready: loading")
}

func TestStopEndsStreams(t *testing.T) {
	server, stop := start(t, newTable().provider())
	w := watch(t, client(t, server))
	w.say(&ruleprovider.CostWatch{AddedNodes: nodes("a"), OpenedQuestions: questions(1)})
	w.awaitThrough()
	began := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > grace/2 {
		t.Errorf("the stop took %v", took)
	}
	w.awaitEnd("Unavailable: the server stops")
}

func TestAPanicOfPlacedEndsTheStream(t *testing.T) {
	provider := newTable().provider()
	provider.Placed = func(*ruleprovider.InFlightPod) { panic("on purpose") }
	server, _ := start(t, provider)
	w := watch(t, client(t, server))
	w.say(&ruleprovider.CostWatch{PlacedPods: []*ruleprovider.InFlightPod{{}}})
	w.awaitEnd("Internal: panic: on purpose")
}

func TestWatchBoundsStreams(t *testing.T) {
	server, _ := start(t, newTable().provider())
	provider := client(t, server)
	var first *watcher
	for range maxStreams {
		w := watch(t, provider)
		w.say(&ruleprovider.CostWatch{})
		w.awaitThrough()
		first = w
	}
	watch(t, provider).awaitEnd("ResourceExhausted: too many streams of WatchCosts: 16")
	first.cancel()
	for end := time.Now().Add(deadline); time.Now().Before(end); {
		// It serves another stream once it has seen the end of the first.
		w := watch(t, provider)
		w.sequence = 1
		if w.stream.Send(&ruleprovider.CostWatch{Sequence: 1}) == nil && w.receive() == nil {
			return
		}
	}
	t.Error("the end of a stream makes no room for another")
}

func TestWatchBoundsQuestions(t *testing.T) {
	server, _ := start(t, newTable().provider())
	w := watch(t, client(t, server))
	ids := make([]uint64, maxQuestions)
	for i := range ids {
		ids[i] = uint64(i + 1)
	}
	w.say(&ruleprovider.CostWatch{AddedNodes: nodes("a"), OpenedQuestions: questions(ids...)})
	w.say(&ruleprovider.CostWatch{OpenedQuestions: questions(1000)})
	w.awaitThrough()
	want := "ResourceExhausted: too many questions on a stream of WatchCosts: 512"
	if len(w.lines) != maxQuestions || len(w.failures) != 1 || w.failures[1000] != want {
		t.Errorf("%d questions have lines, failures %v", len(w.lines), w.failures)
	}
	w.say(&ruleprovider.CostWatch{ClosedQuestions: []uint64{1}, OpenedQuestions: questions(1000)})
	w.awaitLines(1000, map[uint32]int64{0: 0})
}

func TestWatchRefusesInvalidMessages(t *testing.T) {
	server, _ := start(t, newTable().provider())
	provider := client(t, server)
	many := make([]string, maxNodes+1)
	for i := range many {
		many[i] = fmt.Sprint("node-", i)
	}
	for want, message := range map[string]*ruleprovider.CostWatch{
		"InvalidArgument: sequence is 1 after 1: it must increase":                    {Sequence: 1},
		"ResourceExhausted: too many nodes on a stream of WatchCosts: 100000":         {Sequence: 2, AddedNodes: nodes(many...)},
		`ResourceExhausted: node "a" has the index 1000000: it must be below 1000000`: {Sequence: 2, AddedNodes: []*ruleprovider.IndexedNode{{Index: maxIndex, Name: "a"}}},
	} {
		w := watch(t, provider)
		w.say(&ruleprovider.CostWatch{})
		if err := w.stream.Send(message); err != nil {
			t.Fatal(err)
		}
		w.awaitEnd(want)
	}
}

func TestWatchSplitsLargeUpdates(t *testing.T) {
	detail := strings.Repeat("x", 300)
	server, _ := start(t, Provider{Changes: NewChanges(), Costs: func(_ context.Context, request *CostRequest) (Costs, error) {
		costs := Costs{Resolution: 7}
		for _, node := range request.EligibleNodes {
			costs.Usable(node, 1, detail)
		}
		return costs, nil
	}})
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprint("node-", i)
	}
	w := watch(t, client(t, server))
	w.say(&ruleprovider.CostWatch{AddedNodes: nodes(names...), OpenedQuestions: questions(1, 2)})
	w.awaitThrough()
	if len(w.lines[1]) != len(names) || len(w.lines[2]) != len(names) {
		t.Errorf("through came with %d and %d lines", len(w.lines[1]), len(w.lines[2]))
	}
}
