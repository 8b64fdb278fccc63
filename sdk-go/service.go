package tautline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"tautline.io/sdk-go/ruleprovider"
)

type service struct {
	ruleprovider.UnimplementedRuleProviderServer
	provider Provider
	// It has an element for each stream of WatchCosts that is open.
	streams chan struct{}
	// It is done once the server stops.
	stopping context.Context
}

func (s service) EndpointCost(ctx context.Context, request *CostRequest) (*ruleprovider.EndpointCostResponse, error) {
	costs, err := s.provider.Costs(ctx, request)
	if err != nil {
		return nil, err
	}
	return costs.response(request.EligibleNodes)
}

func (s service) Evaluate(ctx context.Context, request *EvaluateRequest) (*ruleprovider.EvaluateResponse, error) {
	if s.provider.Evaluate == nil {
		return &ruleprovider.EvaluateResponse{Compliance: Compliant, Reason: "checked only when pods are placed"}, nil
	}
	evaluation, err := s.provider.Evaluate(ctx, request)
	if err != nil {
		return nil, err
	}
	if _, known := ruleprovider.EvaluateResponse_ComplianceState_name[int32(evaluation.Compliance)]; !known {
		return nil, status.Errorf(codes.Internal, "compliance %d is unknown: return Pending, Compliant, Limit, Violation or Error", evaluation.Compliance)
	}
	reason := strings.ToValidUTF8(evaluation.Reason, "\uFFFD")
	return &ruleprovider.EvaluateResponse{Compliance: evaluation.Compliance, Reason: reason}, nil
}

// gate refuses calls until the provider is loaded, and turns errors and panics into statuses.
func gate(ready *atomic.Bool) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (response any, err error) {
		err = guarded(ctx, ready, info.FullMethod, func() (err error) {
			response, err = handle(ctx, request)
			return err
		})
		return response, err
	}
}

// streamGate does for streams what gate does for calls.
func streamGate(ready *atomic.Bool) grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		return guarded(stream.Context(), ready, info.FullMethod, func() error { return handle(service, stream) })
	}
}

func guarded(ctx context.Context, ready *atomic.Bool, method string, handle func() error) error {
	if strings.HasPrefix(method, "/grpc.") { // health and reflection
		return handle()
	}
	if !ready.Load() {
		return status.Error(codes.Unavailable, "not ready: loading")
	}
	err := recovered(handle)
	answer := toStatus(ctx, err)
	if status.Code(answer) == codes.Internal {
		logFault(method, err)
	}
	return answer
}

// panicked is the error of a panic.
type panicked struct {
	fault any
	stack string
}

func (p panicked) Error() string { return fmt.Sprintf("panic: %v", p.fault) }

func recovered(handle func() error) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = panicked{fault, string(debug.Stack())}
		}
	}()
	return handle()
}

// logFault logs a fault of the provider, which its author should see first.
func logFault(method string, err error) {
	var fault panicked
	if errors.As(err, &fault) {
		slog.Error("panic", "method", method, "panic", fault.fault, "stack", fault.stack)
		return
	}
	slog.Error("failed", "method", method, "error", err)
}

// Metadata has a bound of 16 KiB, and a longer text breaks the connection.
const maxText = 2000

func short(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + " ..."
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

func toStatus(ctx context.Context, err error) error {
	var bad badRule
	var notYet notReady
	var fault panicked
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fault):
		return status.Error(codes.Internal, short(err.Error()))
	case errors.As(err, &bad):
		return status.Error(codes.InvalidArgument, short(err.Error()))
	case errors.As(err, &notYet):
		return status.Error(codes.FailedPrecondition, short("not ready: "+err.Error()))
	case ctx.Err() != nil: // the caller has stopped waiting
		return status.FromContextError(ctx.Err()).Err()
	}
	if known, ok := status.FromError(err); ok {
		return known.Err()
	}
	return status.Error(codes.Internal, short(err.Error()))
}
