package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"trellis/engine/histogram"
)

// shortTimes are bounds of classic buckets in seconds, from 15 microseconds to 8 seconds.
var shortTimes = prometheus.ExponentialBuckets(1.0/(1<<16), 2, 20)

// newDistribution makes a histogram that Prometheus's client counts, and not package histogram.
// Its native buckets have the same schema.
func newDistribution(name, help string, buckets []float64) prometheus.Histogram {
	const growth = 1.19
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets, NativeHistogramBucketFactor: growth,
	})
}

// durations is a family of histograms. Its classic buckets have the powers of two
// from 2^least to 2^most seconds as bounds.
type durations struct {
	desc        *prometheus.Desc
	least, most int
}

func newDurations(name, help string, least, most int, labels ...string) *durations {
	return &durations{describe(name, help, labels...), least, most}
}

// with makes a metric of a histogram, which must not change afterwards. The
// labels are in the order of their names.
func (d *durations) with(h *histogram.Histogram, labels ...*dto.LabelPair) prometheus.Metric {
	return &distribution{d, labels, h}
}

type distribution struct {
	*durations
	labels []*dto.LabelPair
	h      *histogram.Histogram
}

func (m *distribution) Desc() *prometheus.Desc { return m.desc }

func (m *distribution) Write(out *dto.Metric) error {
	count, sum := m.h.Count(), m.h.Sum.Seconds()
	out.Label = m.labels
	out.Histogram = &dto.Histogram{SampleCount: &count, SampleSum: &sum}
	m.writeClassic(out.Histogram)
	m.writeNative(out.Histogram)
	return nil
}

// writeClassic fills in the cumulative buckets.
func (m *distribution) writeClassic(out *dto.Histogram) {
	least, most := m.least<<histogram.Schema, m.most<<histogram.Schema
	n := uint64(0)
	for i, count := range m.h.Buckets {
		n += count
		number := histogram.First + i
		if number < least || number > most || (number-least)%(1<<histogram.Schema) != 0 {
			continue
		}
		bound, cumulative := histogram.UpperBound(i), n
		out.Bucket = append(out.Bucket, &dto.Bucket{UpperBound: &bound, CumulativeCount: &cumulative})
	}
}

// longestGap is the most empty buckets in a row that are written out; more of them end a span.
const longestGap = 2

// writeNative fills in the buckets in spans of neighbours, each as its difference
// from the one before. The first bucket has no lower bound, which is Prometheus's
// zero bucket.
func (m *distribution) writeNative(out *dto.Histogram) {
	schema, threshold, zeros := int32(histogram.Schema), histogram.UpperBound(0), m.h.Buckets[0]
	out.Schema, out.ZeroThreshold, out.ZeroCount = &schema, &threshold, &zeros

	var span *dto.BucketSpan
	last := int64(0)                   // count of the bucket written last
	next := int32(histogram.First) + 1 // number of the bucket behind it
	write := func(n int64) {
		*span.Length++
		out.PositiveDelta = append(out.PositiveDelta, n-last)
		last = n
		next++
	}
	for i, n := range m.h.Buckets {
		if i == 0 || n == 0 {
			continue
		}
		number := int32(histogram.First + i)
		if gap := number - next; span == nil || gap > longestGap {
			offset := gap
			if span == nil {
				offset = number // counted from bucket 0
			}
			span = &dto.BucketSpan{Offset: &offset, Length: new(uint32)}
			out.PositiveSpan = append(out.PositiveSpan, span)
			next = number
		}
		for next < number {
			write(0)
		}
		write(int64(n))
	}
}
