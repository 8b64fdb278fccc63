package harness

import (
	"testing"
	"time"
)

func TestPaceOfATime(t *testing.T) {
	text := []byte("1000000000 9000\n2000000000 140000\n3000000000 160000\n4000000000 9000\n")
	from, to := time.Unix(2, 0), time.Unix(3, 0)
	if pace, err := meanPace(text, from, to); err != nil || pace != 150 {
		t.Errorf("%v us (%v), not 150", pace, err)
	}
	if _, err := meanPace(text, time.Unix(5, 0), time.Unix(6, 0)); err == nil {
		t.Error("a time without a sample has a pace")
	}
	if _, err := meanPace([]byte("slow\n"), from, to); err == nil {
		t.Error("garbage has a pace")
	}
}
