package tautline

import (
	"fmt"
	"regexp"
	"strings"

	"tautline.io/sdk-go/ruleprovider"
)

// NodeCost is the line of one node, with all fields of the protocol.
type NodeCost = ruleprovider.NodeCost

// Costs has the cost of each node, in any unit that all nodes share; lower is better. The server
// sends the eligible nodes only, and those without a cost as unusable.
type Costs struct {
	// Resolution is the difference up to which costs are equally good. 0: every difference counts.
	Resolution int64
	// RequestCost is the cost of a node that just meets the rule's request: nodes of at most this
	// cost are within the request, and equally good unless the policy prefers the nearest. nil: the
	// rule has no request, or none that a cost stands for.
	RequestCost *int64

	lines []*NodeCost
}

// Usable adds a node with its cost, from 0 on. The detail is for people, and may have figures.
func (c *Costs) Usable(node string, cost int64, detail string) {
	c.lines = append(c.lines, &NodeCost{Node: node, Cost: cost, Detail: detail})
	if cost < 0 {
		c.lines[len(c.lines)-1].Reason = negative
	}
}

// Unusable adds a node that cannot be used. The code is short, stable and without figures, such as
// OverLimit; the detail is for people, and may have figures.
func (c *Costs) Unusable(node, code, detail string) {
	c.lines = append(c.lines, &NodeCost{Node: node, Cost: -1, Reason: code, Detail: detail})
}

// Add adds a line with more of the protocol's fields, such as Freeable and TieBreak.
func (c *Costs) Add(line *NodeCost) {
	c.lines = append(c.lines, line)
}

// A code that Usable leaves for the check: it is not valid.
const negative = "negative cost"

var validCode = regexp.MustCompile(`^[A-Z][A-Za-z]{0,39}$`)

// response has exactly the eligible nodes, in their order, or an error for the provider's author.
func (c *Costs) response(eligible []string) (*ruleprovider.EndpointCostResponse, error) {
	byNode := make(map[string]*NodeCost, len(c.lines))
	for _, line := range c.lines {
		if err := checkLine(line); err != nil {
			return nil, err
		}
		if byNode[line.Node] != nil {
			return nil, fmt.Errorf("node %q has two costs: add each node once", line.Node)
		}
		line.Reason, line.Detail = strings.ToValidUTF8(line.Reason, "\uFFFD"), strings.ToValidUTF8(line.Detail, "\uFFFD")
		byNode[line.Node] = line
	}
	if c.Resolution < 0 {
		return nil, fmt.Errorf("Resolution is %d: it may not be negative", c.Resolution)
	}
	lines := make([]*NodeCost, 0, len(eligible))
	for _, node := range eligible {
		line := byNode[node]
		if line == nil {
			line = &NodeCost{Node: node, Cost: -1, Reason: "NoCost", Detail: "the provider gave no cost"}
		}
		lines = append(lines, line)
	}
	return &ruleprovider.EndpointCostResponse{
		NodeAndCost: lines,
		Resolution:  c.Resolution,
		RequestCost: c.RequestCost,
	}, nil
}

func checkLine(line *NodeCost) error {
	switch {
	case line.Cost < 0 && line.Reason == negative:
		return fmt.Errorf("node %q costs %d: a cost is 0 or more; for a node that cannot be used call Unusable", line.Node, line.Cost)
	case line.Cost < 0 && !validCode.MatchString(line.Reason):
		return fmt.Errorf("node %q has the code %q: write a capital letter and up to 39 more letters, such as OverLimit", line.Node, line.Reason)
	case line.TieBreak < 0 || (line.Cost >= 0 && line.TieBreak > line.Cost):
		return fmt.Errorf("node %q has the tie break %d: it is a part of the cost, from 0 to %d", line.Node, line.TieBreak, line.Cost)
	}
	return nil
}
