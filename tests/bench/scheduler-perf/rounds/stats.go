package main

import "slices"

// median of no values is 0.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// interval contains the true median with a confidence of at least 95 %, for any
// distribution (order statistics). Fewer than six values have no interval.
func interval(values []float64) (low, high float64, found bool) {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	// The probability of at most k heads of n fair coins, two-sided.
	chance, term, leave := 0.0, 1.0, -1
	for range n {
		term /= 2
	}
	for k := 0; k < n/2; k++ {
		if chance += term; 2*chance > 0.05 {
			break
		}
		leave = k
		term *= float64(n-k) / float64(k+1)
	}
	if leave < 0 {
		return 0, 0, false
	}
	return sorted[leave], sorted[n-1-leave], true
}
