// Package tautline serves a rule provider of Tautline, which places pods of Kubernetes by
// constraints. A provider answers what each node would cost for a pod:
//
//	func spread(_ context.Context, request *tautline.CostRequest) (tautline.Costs, error) {
//		var costs tautline.Costs
//		peers := tautline.PeerCounts(request)
//		for _, node := range request.EligibleNodes {
//			costs.Usable(node, peers[node], "")
//		}
//		return costs, nil
//	}
//
//	func main() {
//		tautline.Main(tautline.Provider{Costs: spread})
//	}
//
// The label constraint.ciena.com/constraint-spread: enabled on a Service binds the rule "spread" to
// the provider.
package tautline

//go:generate ./generate
