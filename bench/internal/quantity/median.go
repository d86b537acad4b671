package quantity

// Median returns the middle of sorted values, the mean of the two in the middle when their number is even, and 0 when
// there are none.
func Median(sorted []float64) float64 {
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
