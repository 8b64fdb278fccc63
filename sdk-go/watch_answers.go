package tautline

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"tautline.io/sdk-go/ruleprovider"
)

const (
	// A larger update is sent in parts.
	maxUpdateBytes = 1 << 20
	// How long Provider.Costs may take for a question: nobody else ends its context.
	maxCostsTime = 10 * time.Second
)

// costWatch is the state of a stream of WatchCosts.
type costWatch struct {
	provider Provider
	send     func(*ruleprovider.CostUpdate) error

	// The last sequence number that was applied.
	through uint64
	nodes   map[uint32]string
	// The nodes that have no line yet, or whose line may have changed.
	dirty     map[uint32]bool
	questions map[uint64]*question
	// The questions beyond the bound that the caller has not been told of yet.
	refused map[uint64]bool

	// What is to be sent, and its size without through.
	update *ruleprovider.CostUpdate
	bytes  int
}

type question struct {
	id      uint64
	request *CostRequest
	// Whether the caller has its costs.
	answered bool
	failure  *ruleprovider.QuestionFailure
}

func newCostWatch(provider Provider, send func(*ruleprovider.CostUpdate) error) *costWatch {
	return &costWatch{
		provider:  provider,
		send:      send,
		nodes:     map[uint32]string{},
		dirty:     map[uint32]bool{},
		questions: map[uint64]*question{},
		refused:   map[uint64]bool{},
		update:    &ruleprovider.CostUpdate{},
	}
}

// nodeList has nodes in the order of their indexes.
type nodeList struct {
	indexes []uint32
	names   []string
}

func (w *costWatch) list(indexes iter.Seq[uint32]) nodeList {
	list := nodeList{indexes: slices.Sorted(indexes)}
	for _, index := range list.indexes {
		list.names = append(list.names, w.nodes[index])
	}
	return list
}

// answer adds to the update what the caller does not have of its questions.
func (w *costWatch) answer(ctx context.Context, changes changeSet, ticked bool) error {
	if len(changes.nodes) > 0 {
		for index, name := range w.nodes {
			if changes.nodes[name] {
				w.dirty[index] = true
			}
		}
	}
	all := sync.OnceValue(func() nodeList { return w.list(maps.Keys(w.nodes)) })
	dirty := w.list(maps.Keys(w.dirty))
	retry := ticked || changes.all || len(changes.nodes) > 0
	for _, q := range w.questions {
		nodes := dirty
		switch {
		case q.failure != nil && !retry:
			continue
		case !q.answered || changes.all:
			nodes = all()
		case len(dirty.indexes) == 0:
			continue
		}
		if err := w.ask(ctx, q, nodes); err != nil {
			return err
		}
	}
	for id := range w.refused {
		text := fmt.Sprintf("too many questions on a stream of WatchCosts: %d", maxQuestions)
		if err := w.addFailure(&ruleprovider.QuestionFailure{Question: id, Code: int32(codes.ResourceExhausted), Message: text}); err != nil {
			return err
		}
	}
	clear(w.dirty)
	clear(w.refused)
	return nil
}

// ask adds the lines of the nodes to the update, or why there are none. Its error ends the stream.
func (w *costWatch) ask(ctx context.Context, q *question, nodes nodeList) error {
	response, err := w.compute(ctx, q, nodes.names)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		known := status.Convert(err)
		failure := &ruleprovider.QuestionFailure{Question: q.id, Code: int32(known.Code()), Message: short(known.Message())}
		if proto.Equal(failure, q.failure) {
			return nil
		}
		q.answered, q.failure = false, failure
		return w.addFailure(failure)
	}
	q.answered, q.failure = true, nil
	costs := &ruleprovider.QuestionCosts{Question: q.id, Resolution: response.Resolution, RequestCost: response.RequestCost}
	for i, line := range response.NodeAndCost {
		costs.Lines = append(costs.Lines, &ruleprovider.IndexedCost{
			Index:    nodes.indexes[i],
			Cost:     line.Cost,
			Reason:   line.Reason,
			Detail:   line.Detail,
			Freeable: line.Freeable,
			TieBreak: line.TieBreak,
		})
	}
	return w.addCosts(costs)
}

// compute answers as EndpointCost does, with a request that the provider may keep.
func (w *costWatch) compute(ctx context.Context, q *question, nodes []string) (response *ruleprovider.EndpointCostResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxCostsTime)
	defer cancel()
	request := proto.CloneOf(q.request)
	request.EligibleNodes = slices.Clone(nodes)
	err = recovered(func() error {
		costs, err := w.provider.Costs(ctx, request)
		if err != nil {
			return err
		}
		response, err = costs.response(nodes)
		return err
	})
	answer := toStatus(ctx, err)
	// A question that keeps failing is asked every second: only the first time is logged.
	if status.Code(answer) == codes.Internal && q.failure == nil {
		logFault("WatchCosts", err)
	}
	return response, answer
}

// addCosts splits costs that are too large for a message.
func (w *costWatch) addCosts(costs *ruleprovider.QuestionCosts) error {
	size := proto.Size(costs)
	if half := len(costs.Lines) / 2; size > maxUpdateBytes && half > 0 {
		rest := &ruleprovider.QuestionCosts{
			Question:    costs.Question,
			Lines:       costs.Lines[half:],
			Resolution:  costs.Resolution,
			RequestCost: costs.RequestCost,
		}
		costs.Lines = costs.Lines[:half]
		if err := w.addCosts(costs); err != nil {
			return err
		}
		return w.addCosts(rest)
	}
	if err := w.room(size); err != nil {
		return err
	}
	w.update.Costs = append(w.update.Costs, costs)
	return nil
}

func (w *costWatch) addFailure(failure *ruleprovider.QuestionFailure) error {
	if err := w.room(proto.Size(failure)); err != nil {
		return err
	}
	w.update.Failures = append(w.update.Failures, failure)
	return nil
}

// room sends the update if a part of this size would make it too large.
func (w *costWatch) room(size int) error {
	if w.bytes > 0 && w.bytes+size > maxUpdateBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.bytes += size + 8 // with the field's tag and length
	return nil
}

func (w *costWatch) flush() error {
	update := w.update
	w.update, w.bytes = &ruleprovider.CostUpdate{}, 0
	return w.send(update)
}
