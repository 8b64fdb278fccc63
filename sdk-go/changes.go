package tautline

import "sync"

// Changes says which costs have changed, so that callers have the new ones before they need them.
// Its methods may be called concurrently, and never wait for a caller.
//
// With Changes, other pods with the same rule, peers and workload use the costs too. So the line of
// a node may depend neither on the pod's name and UID nor on the other eligible nodes, and
// Resolution and RequestCost may not depend on the eligible nodes.
type Changes struct {
	mu sync.Mutex
	// The number of the last change, and that of the last one of all nodes.
	last, all uint64
	// The last change of each node since all.
	nodes map[string]uint64
	// It is closed at the next change; nil while nobody waits.
	wake chan struct{}
}

// With more names than this, all nodes count as changed.
const maxChangedNodes = 10_000

// NewChanges returns the Changes of a provider.
func NewChanges() *Changes {
	return &Changes{nodes: map[string]uint64{}}
}

// Changed says that costs of these nodes may have changed, for any question. Call it once
// Provider.Costs returns the new ones.
func (c *Changes) Changed(nodes ...string) {
	if len(nodes) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	for _, node := range nodes {
		c.nodes[node] = c.last
	}
	if len(c.nodes) > maxChangedNodes {
		c.everything()
	}
	c.notify()
}

// ChangedAll says that the costs of all nodes may have changed, or Resolution or RequestCost.
func (c *Changes) ChangedAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	c.everything()
	c.notify()
}

func (c *Changes) everything() {
	c.all = c.last
	c.nodes = map[string]uint64{}
}

func (c *Changes) notify() {
	if c.wake != nil {
		close(c.wake)
		c.wake = nil
	}
}

// changeSet has the changes after a number.
type changeSet struct {
	last  uint64
	all   bool
	nodes map[string]bool
	// next is closed at the next change.
	next <-chan struct{}
}

func (c *Changes) since(number uint64) changeSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wake == nil {
		c.wake = make(chan struct{})
	}
	set := changeSet{last: c.last, all: c.all > number, nodes: map[string]bool{}, next: c.wake}
	if c.last > number {
		for node, changed := range c.nodes {
			if changed > number {
				set.nodes[node] = true
			}
		}
	}
	return set
}
