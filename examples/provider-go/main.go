// A provider of the rule "spread": a node costs as many as it has of the pod's
// peers, so pods go where no peer is.
package main

import (
	"context"

	tautline "tautline.io/sdk-go"
)

func spread(_ context.Context, request *tautline.CostRequest) (tautline.Costs, error) {
	var costs tautline.Costs
	peers := tautline.PeerCounts(request)
	for _, node := range request.EligibleNodes {
		costs.Usable(node, peers[node], "")
	}
	return costs, nil
}

func main() {
	// Costs follow from the request alone: they can be sent before kube-scheduler asks, and never change.
	tautline.Main(tautline.Provider{Costs: spread, Changes: tautline.NewChanges()})
}
