package engine

// A heap is a slice whose element i is not before element (i-1)/2, so that none is before
// the first. The functions put it right after one element has changed.

// heapUp moves the last element to where it belongs.
func heapUp[T any](h []T, before func(a, b *T) bool) {
	for i := len(h) - 1; i > 0 && before(&h[i], &h[(i-1)/2]); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

// heapDown moves the first element to where it belongs.
func heapDown[T any](h []T, before func(a, b *T) bool) {
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
