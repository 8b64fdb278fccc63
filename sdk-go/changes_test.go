package tautline

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

func TestChangesSinceANumber(t *testing.T) {
	changes := NewChanges()
	first := changes.since(0)
	changes.Changed()
	changes.Changed("a", "b")
	second := changes.since(first.last)
	changes.Changed("b")
	third := changes.since(second.last)
	changes.ChangedAll()
	fourth := changes.since(third.last)
	for i, want := range []string{"false []", "false [a b]", "false [b]", "true []"} {
		set := []changeSet{first, second, third, fourth}[i]
		if got := fmt.Sprint(set.all, slices.Sorted(maps.Keys(set.nodes))); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
		select {
		case <-set.next:
			if i == 3 {
				t.Error("nothing has changed, but a waiter wakes")
			}
		default:
			if i < 3 {
				t.Errorf("%d: the next change wakes nobody", i)
			}
		}
	}
}

func TestManyChangedNodesAreAllNodes(t *testing.T) {
	changes := NewChanges()
	for i := range maxChangedNodes {
		changes.Changed(fmt.Sprint(i))
	}
	if set := changes.since(0); set.all || len(set.nodes) != maxChangedNodes {
		t.Errorf("all %v, %d nodes", set.all, len(set.nodes))
	}
	changes.Changed("one more")
	if set := changes.since(0); !set.all || len(changes.nodes) != 0 {
		t.Errorf("all %v, %d names are kept", set.all, len(changes.nodes))
	}
}
