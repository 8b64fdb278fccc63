package main

import "testing"

func TestMedian(t *testing.T) {
	for want, of := range map[float64][]float64{0: nil, 3: {9, 3, 1}, 2.5: {4, 1, 3, 2}} {
		if got := median(of); got != want {
			t.Errorf("median of %v: %v, not %v", of, got, want)
		}
	}
}

// Of nine values the second and the eighth: 1 - 2 x (1 + 9) / 512 = 96 %. Five do
// not do: 1 - 2/32 = 94 %.
func TestInterval(t *testing.T) {
	for n, want := range map[int][2]float64{6: {1, 6}, 8: {1, 8}, 9: {2, 8}, 12: {3, 10}, 15: {4, 12}} {
		var values []float64
		for i := range n {
			values = append(values, float64(n-i))
		}
		low, high, found := interval(values)
		if !found || low != want[0] || high != want[1] {
			t.Errorf("of %d: %v to %v, %v", n, low, high, found)
		}
	}
	if _, _, found := interval([]float64{1, 2, 3, 4, 5}); found {
		t.Error("five values have no such interval")
	}
}
