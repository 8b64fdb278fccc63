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
}

func (s service) EndpointCost(ctx context.Context, request *CostRequest) (*ruleprovider.EndpointCostResponse, error) {
	costs, err := s.provider.Costs(ctx, request)
	if err != nil {
		return nil, err
	}
	return costs.response(request)
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
		if strings.HasPrefix(info.FullMethod, "/grpc.") { // health and reflection
			return handle(ctx, request)
		}
		if !ready.Load() {
			return nil, status.Error(codes.Unavailable, "not ready: loading")
		}
		defer func() {
			if fault := recover(); fault != nil {
				slog.Error("panic", "method", info.FullMethod, "panic", fault, "stack", string(debug.Stack()))
				response, err = nil, status.Error(codes.Internal, short(fmt.Sprintf("panic: %v", fault)))
			}
		}()
		response, err = handle(ctx, request)
		answer := toStatus(ctx, err)
		if status.Code(answer) == codes.Internal {
			// A fault of the provider, which its author should see first.
			slog.Error("failed", "method", info.FullMethod, "error", err)
		}
		return response, answer
	}
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
	switch {
	case err == nil:
		return nil
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
