// Package sliceheap puts slices right that are heaps: element i is not before element (i-1)/2, so that none is
// before the first.
package sliceheap

// Up moves the last element to where it belongs.
func Up[T any](h []T, before func(a, b *T) bool) {
	for i := len(h) - 1; i > 0 && before(&h[i], &h[(i-1)/2]); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

// Down moves the first element to where it belongs.
func Down[T any](h []T, before func(a, b *T) bool) {
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && before(&h[c+1], &h[c]) {
			c++
		}
		if !before(&h[c], &h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
