package metrics

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"trellis/engine/histogram"
)

var testDurations = newDurations("test_seconds", "For tests.", -20, 7)

// write returns the histogram of these durations as it is shown.
func write(t *testing.T, ds []time.Duration) *dto.Histogram {
	t.Helper()
	var h histogram.Histogram
	for _, d := range ds {
		h.Observe(d, 1)
	}
	var m dto.Metric
	if err := testDurations.with(&h).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.Histogram
}

func randomDurations(rnd *rand.Rand, n int) (ds []time.Duration) {
	for range n {
		ds = append(ds, time.Duration(rnd.Uint64()>>1>>(14+rnd.IntN(49))))
	}
	return ds
}

// native reads the native buckets as Prometheus does: how many durations are in
// the bucket of each number.
func native(t *testing.T, h *dto.Histogram) map[int]int64 {
	t.Helper()
	m := make(map[int]int64)
	number, count, deltas := 0, int64(0), h.PositiveDelta
	for _, span := range h.PositiveSpan {
		number += int(span.GetOffset())
		for range span.GetLength() {
			if len(deltas) == 0 {
				t.Fatal("fewer buckets than the spans announce")
			}
			count += deltas[0]
			deltas = deltas[1:]
			if count < 0 {
				t.Fatalf("bucket %d has %d durations", number, count)
			}
			if count > 0 {
				m[number] = count
			}
			number++
		}
	}
	if len(deltas) > 0 {
		t.Fatal("more buckets than the spans announce")
	}
	return m
}

func TestNativeBucketsAreThoseOfTheHistogram(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for size := range 200 {
		ds := randomDurations(rnd, size)
		h := write(t, ds)
		want, zeros := make(map[int]int64), uint64(0)
		for _, d := range ds {
			// Bucket i holds what is over 2^((i-1)/4) and up to 2^(i/4) seconds.
			i := int(math.Ceil(math.Log2(d.Seconds()) * 4))
			if d.Seconds() <= h.GetZeroThreshold() {
				zeros++
			} else {
				want[i]++
			}
		}
		got := native(t, h)
		if h.GetZeroCount() != zeros || h.GetSchema() != 2 || h.GetSampleCount() != uint64(size) {
			t.Fatalf("%d zeros of %d with schema %d, want %d of %d", h.GetZeroCount(), h.GetSampleCount(), h.GetSchema(), zeros, size)
		}
		for i, n := range want {
			if got[i] != n {
				t.Fatalf("%v: bucket %d has %d, want %d", ds, i, got[i], n)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%v: %d buckets, want %d", ds, len(got), len(want))
		}
	}
}

func TestClassicBucketsCountExactly(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	ds := randomDurations(rnd, 5000)
	for e := -22; e < 10; e++ { // the bounds themselves
		ds = append(ds, time.Duration(math.Ldexp(1e9, e)))
	}
	h := write(t, ds)
	if n := len(h.Bucket); n != 28 || h.Bucket[0].GetUpperBound() != 1.0/(1<<20) || h.Bucket[n-1].GetUpperBound() != 128 {
		t.Fatalf("%d buckets from %v to %v", n, h.Bucket[0].GetUpperBound(), h.Bucket[n-1].GetUpperBound())
	}
	for _, b := range h.Bucket {
		n := uint64(0)
		for _, d := range ds {
			if d.Seconds() <= b.GetUpperBound() {
				n++
			}
		}
		if b.GetCumulativeCount() != n {
			t.Errorf("%d are up to %v, want %d", b.GetCumulativeCount(), b.GetUpperBound(), n)
		}
	}
}

func TestAnEmptyHistogramIsNativeToo(t *testing.T) {
	h := write(t, nil)
	if h.GetZeroThreshold() == 0 || h.Schema == nil || h.GetSampleCount() != 0 || len(h.Bucket) == 0 {
		t.Fatalf("%v", h)
	}
}
