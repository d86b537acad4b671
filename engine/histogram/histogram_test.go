package histogram

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestEveryDurationCountsInTheBucketWhoseBoundsHoldIt(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	ds := []time.Duration{0, 1, 59, 60, 61, time.Microsecond, time.Second, time.Second + 1, 2 * time.Second, 1 << 62}
	for range 100_000 {
		ds = append(ds, time.Duration(rnd.Uint64()>>1>>rnd.IntN(63)))
	}
	for _, d := range ds {
		var h Histogram
		h.Observe(d, 3)
		for i, n := range h.Buckets {
			if n == 0 {
				continue
			}
			if n != 3 || h.Count() != 3 {
				t.Fatalf("%v was counted %d times", d, n)
			}
			s := d.Seconds()
			if i < NumBuckets-1 && s > UpperBound(i)*(1+1e-9) || i > 0 && s < UpperBound(i-1)*(1-1e-9) {
				t.Fatalf("%v is in the bucket from %v to %v", d, UpperBound(i-1), UpperBound(i))
			}
		}
	}
}

func TestAddSumsBucketsAndSums(t *testing.T) {
	var a, b Histogram
	a.Observe(time.Second, 2)
	b.Observe(time.Second, 1)
	b.Observe(-time.Second, 1)
	a.Add(&b)
	if a.Count() != 4 || a.Sum != 3*time.Second {
		t.Fatalf("count %d, sum %v", a.Count(), a.Sum)
	}
}

func BenchmarkObserve(b *testing.B) {
	var h Histogram
	b.ReportAllocs()
	d := time.Duration(1)
	for b.Loop() {
		h.Observe(d&0xffffff, 1)
		d += 7919
	}
}
