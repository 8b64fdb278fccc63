package tautline

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"tautline.io/sdk-go/ruleprovider"
)

// CostRequest asks for the cost of each of its EligibleNodes.
type CostRequest = ruleprovider.EndpointCostRequest

// EvaluateRequest asks whether placed objects comply with a rule.
type EvaluateRequest = ruleprovider.EvaluateRequest

// Compliance is the state of placed objects: Pending, Compliant, Limit, Violation or Error.
type Compliance = ruleprovider.EvaluateResponse_ComplianceState

// The states of Evaluate, in order of severity.
const (
	Pending   = ruleprovider.EvaluateResponse_Pending
	Compliant = ruleprovider.EvaluateResponse_Compliant
	Limit     = ruleprovider.EvaluateResponse_Limit
	Violation = ruleprovider.EvaluateResponse_Violation
	Error     = ruleprovider.EvaluateResponse_Error
)

// Evaluation is the compliance of placed objects, and the reason for people.
type Evaluation struct {
	Compliance Compliance
	Reason     string
}

// Provider measures one rule, or several. Its functions are called concurrently.
type Provider struct {
	// Costs returns the cost of each eligible node. kube-scheduler waits: answer from memory,
	// within a few milliseconds.
	Costs func(context.Context, *CostRequest) (Costs, error)

	// Changes says when costs have changed: callers that watch then have the new ones, of Costs,
	// before kube-scheduler asks. Nil: they ask for each pod. Leave it nil if costs depend on the pod.
	Changes *Changes

	// Placed gets each pod that was promised a node, for allocators: count it there until your
	// own watch shows it, or it ends. Call Changes.Changed for the node before Placed returns.
	// A pod may come again, and its end never if the caller has died. Nil: ignored.
	Placed func(*ruleprovider.InFlightPod)

	// Ended gets the UID of a pod of Placed that does not go to its node, or that every watch shows
	// there by now. The UID may be unknown. Nil: ignored.
	Ended func(uid string)

	// Evaluate returns whether placed objects comply. Nil: they do, for rules that count only
	// when a pod is placed.
	Evaluate func(context.Context, *EvaluateRequest) (Evaluation, error)

	// Load gets the data that the other functions need. Until it returns, health is NOT_SERVING
	// and calls fail with UNAVAILABLE; its error ends the server. Nil: nothing to load.
	Load func(context.Context) error

	// Register adds services to the server, such as
	// allocator.RegisterAllocatorServer. Nil: none.
	Register func(grpc.ServiceRegistrar)
}

// PeerCounts counts the peers of each node. Callers that send PeerNodes only do not say how many
// they are: then each has 1.
func PeerCounts(request *CostRequest) map[string]int64 {
	counts := map[string]int64{}
	for _, peer := range request.GetPeers() {
		if peer.GetNode() != "" {
			counts[peer.GetNode()]++
		}
	}
	if len(request.GetPeers()) == 0 {
		for _, node := range request.GetPeerNodes() {
			counts[node] = 1
		}
	}
	return counts
}

type badRule struct{ error }
type notReady struct{ error }

// BadRule is the error for a rule whose request or limit is invalid; name the field and the fix. The
// caller gets INVALID_ARGUMENT.
func BadRule(format string, args ...any) error {
	return badRule{fmt.Errorf(format, args...)}
}

// NotReady is the error while there is no data. The caller gets FAILED_PRECONDITION, and does not
// count it as a failure of the provider.
func NotReady(format string, args ...any) error {
	return notReady{fmt.Errorf(format, args...)}
}
