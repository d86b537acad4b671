package metrics

import (
	"time"

	"trellis/codec"
	"trellis/reactor"

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

// unlabelled stands for the family in what the library makes of the native buckets: the labels are added afterwards.
var unlabelled = prometheus.NewDesc("native_buckets", "Native buckets.", nil, nil)

func (m *distribution) Write(out *dto.Metric) error {
	buckets := make(map[int]int64)
	for i, n := range m.h.Buckets {
		if i > 0 && n > 0 { // the first has no lower bound, which is Prometheus's zero bucket
			buckets[histogram.First+i] = int64(n)
		}
	}
	native, err := prometheus.NewConstNativeHistogram(unlabelled, m.h.Count(), m.h.Sum.Seconds(), buckets, nil,
		m.h.Buckets[0], histogram.Schema, histogram.UpperBound(0), time.Time{})
	if err != nil {
		return err
	}
	if err := native.Write(out); err != nil {
		return err
	}
	out.Label, out.Histogram.CreatedTimestamp = m.labels, nil
	m.writeClassic(out.Histogram)
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

var commandDuration = newDurations("beanstalkd_command_duration_seconds",
	"How long commands took from when they had been read until their replies were written; "+
		"waited tells whether the command had to wait for a job.", -20, 7, "command", "waited")

var (
	waitedNo  = label("waited", "false")
	waitedYes = label("waited", "true")
)

// collectLatency shows the commands that there were.
func collectLatency(ch chan<- prometheus.Metric, y *reactor.Latency) {
	show := func(all *[codec.NumCommands]histogram.Histogram, waited *dto.LabelPair) {
		for op := range all {
			if h := &all[op]; h.Count() > 0 {
				ch <- commandDuration.with(h, commandLabels[op], waited)
			}
		}
	}
	show(&y.Answered, waitedNo)
	show(&y.Waited, waitedYes)
}
