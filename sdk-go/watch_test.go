package tautline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"tautline.io/sdk-go/ruleprovider"
)

// table is a provider whose costs, or error, change.
type table struct {
	changes *Changes
	mu      sync.Mutex
	costs   map[string]int64
	err     error
	// The last request.
	request *CostRequest
}

func newTable() *table {
	return &table{changes: NewChanges(), costs: map[string]int64{}}
}

func (t *table) provider() Provider { return Provider{Costs: t.answer, Changes: t.changes} }

func (t *table) answer(_ context.Context, request *CostRequest) (Costs, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.request = request
	if t.err != nil && t.err.Error() == "panic" {
		panic("on purpose")
	}
	costs := Costs{Resolution: 7}
	for _, node := range request.EligibleNodes {
		costs.Usable(node, t.costs[node], "")
	}
	// The caller must not rely on it.
	slices.Reverse(request.EligibleNodes)
	return costs, t.err
}

func (t *table) set(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
}

// watcher is a caller of WatchCosts, with what it was sent.
type watcher struct {
	t        *testing.T
	stream   grpc.BidiStreamingClient[ruleprovider.CostWatch, ruleprovider.CostUpdate]
	cancel   context.CancelFunc
	sequence uint64
	through  uint64
	lines    map[uint64]map[uint32]int64
	failures map[uint64]string
	// The indexes of all lines that came.
	came []uint32
}

func watch(t *testing.T, provider ruleprovider.RuleProviderClient) *watcher {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	stream, err := provider.WatchCosts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &watcher{t: t, stream: stream, cancel: cancel, lines: map[uint64]map[uint32]int64{}, failures: map[uint64]string{}}
}

func (w *watcher) say(message *ruleprovider.CostWatch) {
	w.t.Helper()
	w.sequence++
	message.Sequence = w.sequence
	if err := w.stream.Send(message); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watcher) receive() error {
	update, err := w.stream.Recv()
	if err != nil {
		return err
	}
	if size := proto.Size(update); size > maxUpdateBytes+16 {
		w.t.Errorf("an update has %d bytes", size)
	}
	for _, costs := range update.Costs {
		delete(w.failures, costs.Question)
		if costs.Resolution != 7 {
			w.t.Errorf("resolution %d", costs.Resolution)
		}
		if w.lines[costs.Question] == nil {
			w.lines[costs.Question] = map[uint32]int64{}
		}
		for _, line := range costs.Lines {
			w.lines[costs.Question][line.Index] = line.Cost
			w.came = append(w.came, line.Index)
		}
	}
	for _, failure := range update.Failures {
		w.failures[failure.Question] = codes.Code(failure.Code).String() + ": " + failure.Message
	}
	w.through = max(w.through, update.Through)
	return nil
}

// await receives updates until a condition holds.
func (w *watcher) await(what string, holds func() bool) {
	w.t.Helper()
	for !holds() {
		if err := w.receive(); err != nil {
			w.t.Fatalf("%s: %v; lines %v, failures %v, through %d", what, err, w.lines, w.failures, w.through)
		}
	}
}

func (w *watcher) awaitLines(question uint64, want map[uint32]int64) {
	w.t.Helper()
	w.await(fmt.Sprint("lines ", want), func() bool { return maps.Equal(w.lines[question], want) })
}

func (w *watcher) awaitThrough() {
	w.t.Helper()
	w.await("through", func() bool { return w.through == w.sequence })
}

// awaitEnd receives until the stream ends with this status.
func (w *watcher) awaitEnd(want string) {
	w.t.Helper()
	var err error
	for err == nil {
		err = w.receive()
	}
	if got := status.Code(err).String() + ": " + status.Convert(err).Message(); got != want {
		w.t.Errorf("%s, want %s", got, want)
	}
}

func nodes(names ...string) (added []*ruleprovider.IndexedNode) {
	for i, name := range names {
		added = append(added, &ruleprovider.IndexedNode{Index: uint32(i), Name: name})
	}
	return added
}

func questions(ids ...uint64) (opened []*ruleprovider.OpenedQuestion) {
	for _, id := range ids {
		opened = append(opened, &ruleprovider.OpenedQuestion{Id: id, Question: &CostRequest{Rule: &ruleprovider.PolicyRule{Name: "near"}}})
	}
	return opened
}

func TestWatchSendsFirstCostsAndChanges(t *testing.T) {
	table := newTable()
	table.costs["b"] = 2
	server, _ := start(t, table.provider())
	w := watch(t, client(t, server))
	w.say(&ruleprovider.CostWatch{AddedNodes: nodes("a", "b", "c"), OpenedQuestions: questions(5)})
	w.awaitThrough()
	if !maps.Equal(w.lines[5], map[uint32]int64{0: 0, 1: 2, 2: 0}) {
		t.Errorf("first lines %v", w.lines)
	}
	table.set(func() {
		if table.request.Rule.Name != "near" {
			t.Errorf("request %v", table.request)
		}
	})

	w.came = nil
	table.set(func() { table.costs["b"] = 3 })
	table.changes.Changed("b", "elsewhere")
	w.awaitLines(5, map[uint32]int64{0: 0, 1: 3, 2: 0})
	w.say(&ruleprovider.CostWatch{AddedNodes: []*ruleprovider.IndexedNode{{Index: 9, Name: "d"}}, RemovedNodes: []uint32{0}})
	w.awaitThrough()
	w.say(&ruleprovider.CostWatch{OpenedQuestions: questions(6)})
	w.awaitLines(6, map[uint32]int64{1: 3, 2: 0, 9: 0})
	slices.Sort(w.came)
	if got := slices.Compact(w.came); !slices.Equal(got, []uint32{1, 2, 9}) || len(w.lines[5]) != 4 {
		t.Errorf("lines of %v came; %v", got, w.lines)
	}

	table.set(func() { table.costs = map[string]int64{"b": 5, "c": 6, "d": 7} })
	table.changes.ChangedAll()
	w.awaitLines(5, map[uint32]int64{0: 0, 1: 5, 2: 6, 9: 7})
	w.awaitLines(6, map[uint32]int64{1: 5, 2: 6, 9: 7})

	w.say(&ruleprovider.CostWatch{ClosedQuestions: []uint64{5}})
	w.awaitThrough()
	table.set(func() { table.costs["b"] = 8 })
	table.changes.Changed("b")
	w.awaitLines(6, map[uint32]int64{1: 8, 2: 6, 9: 7})
	if w.lines[5][1] != 5 {
		t.Error("a closed question has a new line")
	}
	if err := w.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	w.awaitEnd("Unknown: EOF")
}

func TestWatchSendsOnlyTheChangedLine(t *testing.T) {
	table := newTable()
	server, _ := start(t, table.provider())
	w := watch(t, client(t, server))
	w.say(&ruleprovider.CostWatch{AddedNodes: nodes("a", "b", "c"), OpenedQuestions: questions(1)})
	w.awaitLines(1, map[uint32]int64{0: 0, 1: 0, 2: 0})
	w.came = nil
	for cost := range int64(20) {
		table.set(func() { table.costs["c"] = cost })
		table.changes.Changed("c")
	}
	w.awaitLines(1, map[uint32]int64{0: 0, 1: 0, 2: 19})
	if got := slices.Compact(w.came); !slices.Equal(got, []uint32{2}) {
		t.Errorf("lines of %v came", got)
	}
}

func TestWatchAsksAFailedQuestionAgain(t *testing.T) {
	table := newTable()
	server, _ := start(t, table.provider())
	w := watch(t, client(t, server))
	failing := func(err error, want string) {
		t.Helper()
		table.set(func() { table.err = err })
		table.changes.Changed("a")
		w.await(want, func() bool { return w.failures[1] == want })
	}
	w.say(&ruleprovider.CostWatch{AddedNodes: nodes("a", "b"), OpenedQuestions: questions(1)})
	w.awaitLines(1, map[uint32]int64{0: 0, 1: 0})
	failing(BadRule("limit %q", "few"), `InvalidArgument: limit "few"`)
	failing(errors.New("panic"), "Internal: panic: on purpose")
	failing(status.Error(codes.Unavailable, "\xff"), "Unavailable: \uFFFD")
	failing(NotReady("no table"), "FailedPrecondition: not ready: no table")
	// Nobody says that it recovers.
	table.set(func() { table.err, table.costs["b"] = nil, 4 })
	w.awaitLines(1, map[uint32]int64{0: 0, 1: 4})
	if len(w.failures) > 0 {
		t.Error(w.failures)
	}
}

func TestWatchTellsOfPodsInFlight(t *testing.T) {
	table := newTable()
	provider := table.provider()
	placed := map[string]string{}
	move := func(uid, node string, by int64) {
		table.set(func() { placed[uid] = node; table.costs[node] += by })
		table.changes.Changed(node)
	}
	provider.Placed = func(pod *ruleprovider.InFlightPod) { move(pod.Workload.Uid, pod.Node, 1) }
	provider.Ended = func(uid string) { move(uid, placed[uid], -1) }
	server, _ := start(t, provider)
	w := watch(t, client(t, server))
	w.say(&ruleprovider.CostWatch{AddedNodes: nodes("a", "b"), OpenedQuestions: questions(1)})
	w.awaitLines(1, map[uint32]int64{0: 0, 1: 0})
	w.say(&ruleprovider.CostWatch{PlacedPods: []*ruleprovider.InFlightPod{{Node: "b", Workload: &ruleprovider.Workload{Uid: "u"}}}})
	w.awaitThrough()
	if w.lines[1][1] != 1 {
		t.Errorf("through comes before the line: %v", w.lines)
	}
	w.say(&ruleprovider.CostWatch{EndedPods: []string{"u"}})
	w.awaitThrough()
	if w.lines[1][1] != 0 {
		t.Errorf("through comes before the line: %v", w.lines)
	}
}
