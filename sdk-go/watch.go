package tautline

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"tautline.io/sdk-go/ruleprovider"
)

// A stranger may connect, so what streams hold is bounded.
const (
	maxStreams   = 16
	maxQuestions = 512
	maxNodes     = 100_000
	maxIndex     = 1_000_000
	// A round takes at most so many messages, so that costs are sent while more come.
	maxMessages = 100
)

// through is sent that often, and failed questions are asked again.
const tick = time.Second

type costStream = grpc.BidiStreamingServer[ruleprovider.CostWatch, ruleprovider.CostUpdate]

// received is a message of the caller, or the end of the stream.
type received struct {
	message *ruleprovider.CostWatch
	err     error
}

func (s service) WatchCosts(stream costStream) error {
	if s.provider.Changes == nil {
		return s.UnimplementedRuleProviderServer.WatchCosts(stream)
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		return status.Errorf(codes.ResourceExhausted, "too many streams of WatchCosts: %d", maxStreams)
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	watch := newCostWatch(s.provider, stream.Send)
	err := watch.run(ctx, receive(ctx, stream))
	switch {
	case s.stopping.Err() != nil:
		return status.Error(codes.Unavailable, "the server stops")
	case errors.Is(err, io.EOF): // the caller has closed the stream
		return nil
	}
	return err
}

func receive(ctx context.Context, stream costStream) <-chan received {
	messages := make(chan received)
	go func() {
		for {
			message, err := stream.Recv()
			select {
			case messages <- received{message, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return messages
}

// run answers messages and changes until the stream ends.
func (w *costWatch) run(ctx context.Context, messages <-chan received) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	changes := w.provider.Changes.since(0)
	for {
		through, ticked := w.through, false
		select {
		case next := <-messages:
			if err := w.apply(next); err != nil {
				return err
			}
			if err := w.applyReady(messages); err != nil {
				return err
			}
		case <-changes.next:
		case <-ticker.C:
			ticked = true
		case <-ctx.Done():
			return ctx.Err()
		}
		// The changes are read before the costs are computed: a later one makes the next round.
		changes = w.provider.Changes.since(changes.last)
		if err := w.answer(ctx, changes, ticked); err != nil {
			return err
		}
		if ticked || w.through != through || w.bytes > 0 {
			w.update.Through = w.through
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
}

func (w *costWatch) applyReady(messages <-chan received) error {
	for range maxMessages {
		select {
		case next := <-messages:
			if err := w.apply(next); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

// apply takes the parts of a message in the order of its fields.
func (w *costWatch) apply(next received) error {
	message := next.message
	switch {
	case next.err != nil:
		return next.err
	case message.Sequence <= w.through:
		return status.Errorf(codes.InvalidArgument, "sequence is %d after %d: it must increase", message.Sequence, w.through)
	}
	w.through = message.Sequence
	for _, index := range message.RemovedNodes {
		delete(w.nodes, index)
		delete(w.dirty, index)
	}
	for _, node := range message.AddedNodes {
		if node.Index >= maxIndex {
			return status.Errorf(codes.ResourceExhausted, "node %q has the index %d: it must be below %d", short(node.Name), node.Index, maxIndex)
		}
		w.nodes[node.Index], w.dirty[node.Index] = node.Name, true
		if len(w.nodes) > maxNodes {
			return status.Errorf(codes.ResourceExhausted, "too many nodes on a stream of WatchCosts: %d", maxNodes)
		}
	}
	for _, uid := range message.EndedPods {
		if w.provider.Ended != nil {
			w.provider.Ended(uid)
		}
	}
	for _, pod := range message.PlacedPods {
		if w.provider.Placed != nil {
			w.provider.Placed(pod)
		}
	}
	for _, id := range message.ClosedQuestions {
		delete(w.questions, id)
		delete(w.refused, id)
	}
	for _, opened := range message.OpenedQuestions {
		w.open(opened)
	}
	return nil
}

func (w *costWatch) open(opened *ruleprovider.OpenedQuestion) {
	if w.questions[opened.Id] == nil && len(w.questions) >= maxQuestions {
		w.refused[opened.Id] = true
		return
	}
	delete(w.refused, opened.Id)
	request := opened.Question
	if request == nil {
		request = &CostRequest{}
	}
	w.questions[opened.Id] = &question{id: opened.Id, request: request}
}
