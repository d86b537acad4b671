package histogram

import (
	"math"
	"math/bits"
	"time"
)

const (
	// Schema is the resolution as Prometheus numbers it: 2^Schema buckets to
	// each doubling.
	Schema = 2
	// First and Last are the numbers of the outermost buckets.
	First = -24 << Schema
	Last  = 20 << Schema
	// NumBuckets is the number of buckets.
	NumBuckets = Last - First + 1
)

// Histogram counts durations. The zero Histogram is empty. It is not safe for
// concurrent use: what guards it is its owner's affair.
type Histogram struct {
	Sum     time.Duration // of all durations; it overflows after 292 years of them
	Buckets [NumBuckets]uint64
}

// bounds are the upper bounds of the buckets in nanoseconds.
var bounds = func() (b [NumBuckets]uint64) {
	for i := range b {
		b[i] = uint64(math.Floor(math.Exp2(float64(First+i)/(1<<Schema)) * 1e9))
	}
	return b
}()

// starts has, for every length of a number in bits and the three bits behind
// its first, the first bucket that may hold such a number. It is at most one
// below the right one.
var starts = func() (s [65 * 8]uint8) {
	for n := range 65 {
		for next := range 8 {
			least := uint64(0)
			if n > 3 {
				least = uint64(8+next) << (n - 4)
			}
			i := 0
			for i < NumBuckets-1 && bounds[i] < least {
				i++
			}
			s[n*8+next] = uint8(i)
		}
	}
	return s
}()

// Observe counts a duration n times. A negative one counts as none at all, 0.
func (h *Histogram) Observe(d time.Duration, n uint64) {
	v := uint64(max(d, 0))
	size := bits.Len64(v)
	i := int(starts[size*8+int(v<<(64-size)>>60&7)])
	for i < NumBuckets-1 && bounds[i] < v {
		i++
	}
	h.Buckets[i] += n
	h.Sum += time.Duration(v) * time.Duration(n)
}

// Add adds what another histogram has counted.
func (h *Histogram) Add(o *Histogram) {
	for i, n := range o.Buckets {
		h.Buckets[i] += n
	}
	h.Sum += o.Sum
}

// Count is the number of durations.
func (h *Histogram) Count() (n uint64) {
	for _, b := range h.Buckets {
		n += b
	}
	return n
}

// UpperBound is the upper bound of the bucket at an index of Buckets, in seconds.
func UpperBound(index int) float64 {
	return math.Exp2(float64(First+index) / (1 << Schema))
}
