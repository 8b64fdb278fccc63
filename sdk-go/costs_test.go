package tautline

import (
	"math"
	"strings"
	"testing"

	"tautline.io/sdk-go/ruleprovider"
)

func TestResponseHasExactlyTheEligibleNodes(t *testing.T) {
	var costs Costs
	costs.Resolution, costs.RequestCost = 7, new(int64)
	costs.Usable("elsewhere", 1, "")
	costs.Unusable("b", "OverLimit", "9ms > 5ms")
	costs.Usable("a", math.MaxInt64, "far\xff")
	costs.Add(&NodeCost{Node: "d", Cost: 5, TieBreak: 5})
	costs.Add(&NodeCost{Node: "e", Cost: math.MinInt64, Reason: "Taken", Freeable: true})
	response, err := costs.response([]string{"a", "b", "c", "d", "e"})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, line := range response.NodeAndCost {
		kind := "usable"
		if line.Cost < 0 {
			kind = line.Reason
		}
		lines = append(lines, line.Node+" "+kind)
	}
	if got := strings.Join(lines, ", "); got != "a usable, b OverLimit, c NoCost, d usable, e Taken" {
		t.Error(got)
	}
	if got := response.NodeAndCost[0].Detail; got != "far\uFFFD" {
		t.Errorf("protobuf refuses the detail %q", got)
	}
	if response.Resolution != 7 || response.RequestCost == nil {
		t.Error(response)
	}
}

func TestResponseRefusesInvalidCosts(t *testing.T) {
	for want, add := range map[string]func(*Costs){
		`node "a" has two costs`:             func(c *Costs) { c.Usable("a", 1, ""); c.Unusable("a", "Full", "") },
		`node "a" costs -3: a cost is 0`:     func(c *Costs) { c.Usable("a", -3, "") },
		`node "a" has the code "over limit"`: func(c *Costs) { c.Unusable("a", "over limit", "") },
		`node "a" has the code ""`:           func(c *Costs) { c.Unusable("a", "", "") },
		`node "a" has the code "Limit9"`:     func(c *Costs) { c.Unusable("a", "Limit9", "") },
		`node "a" has the code "Aaaa`:        func(c *Costs) { c.Unusable("a", "A"+strings.Repeat("a", 40), "") },
		`the tie break 6: it is a part`:      func(c *Costs) { c.Add(&NodeCost{Node: "a", Cost: 5, TieBreak: 6}) },
		`the tie break -1: it is a part`:     func(c *Costs) { c.Add(&NodeCost{Node: "a", Cost: 5, TieBreak: -1}) },
		`Resolution is -1: it may not be`:    func(c *Costs) { c.Resolution = -1 },
	} {
		var costs Costs
		add(&costs)
		_, err := costs.response([]string{"a"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestPeerCountsFallsBackToPeerNodes(t *testing.T) {
	request := &CostRequest{PeerNodes: []string{"a", "b"}}
	if counts := PeerCounts(request); counts["a"] != 1 || counts["b"] != 1 || counts["c"] != 0 {
		t.Error(counts)
	}
	request.Peers = []*ruleprovider.Peer{{Node: "a"}, {Node: "a"}, {Node: "b"}, {}}
	if counts := PeerCounts(request); counts["a"] != 2 || counts["b"] != 1 || len(counts) != 2 {
		t.Error(counts)
	}
}
