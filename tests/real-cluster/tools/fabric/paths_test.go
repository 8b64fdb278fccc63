package main

import (
	"strings"
	"testing"
	"time"
)

var sites = []string{"n1", "n2", "n3"}

func TestPathsGoBothWaysOrOne(t *testing.T) {
	p, err := parsePaths(`
# a comment
n1 n2 10ms jitter 1ms   # both ways
n1>n2 15ms loss 0.5
n2 n3 down
`, sites)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to int
		want     path
	}{
		{0, 1, path{delay: 15 * time.Millisecond, loss: 0.5}},
		{1, 0, path{delay: 10 * time.Millisecond, jitter: time.Millisecond}},
		{1, 2, path{down: true}},
		{2, 1, path{down: true}},
		{0, 2, path{}},
	} {
		if got := p[c.from][c.to]; got != c.want {
			t.Errorf("%s>%s: %+v, not %+v", sites[c.from], sites[c.to], got, c.want)
		}
	}
}

func TestFaultyLinesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"n1":                 "line 1: the second site is missing",
		"\nn1 n4 1ms":        `line 2: "n1" and "n4" are not two of the sites`,
		"n1 n1 1ms":          "not two of the sites",
		"n1 n2 10":           "missing unit",
		"n1 n2 -1ms":         "not between 0 and 1m",
		"n1 n2 1ms jitter":   "the value of jitter is missing",
		"n1 n2 1ms loss 1.5": "not between 0 and 1",
		"n1 n2 1ms loss NaN": "not between 0 and 1",
	} {
		if _, err := parsePaths(text, sites); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %q", text, err, want)
		}
	}
}
