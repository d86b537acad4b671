package metrics

import (
	"math"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A list is the metrics that are read from an S, such as the statistics of the binlog. A new
// metric is an entry in one of the lists, and what testdata/server.txt shows of it.
type list[S any] []family[S]

// A family is the metrics of one name.
type family[S any] struct {
	*kind
	samples []sample[S]
}

// A kind is what a scrape knows of a family.
type kind struct {
	desc    *prometheus.Desc
	counter bool
}

// A sample is one metric of a family.
type sample[S any] struct {
	label *dto.LabelPair  // nil if the family has none of its own
	value func(S) float64 // NaN: not shown
}

// by is the samples of a family by the values of its label.
type by[S any] []struct {
	label string
	value func(S) float64
}

// gauge is a family of one sample. The labels are those that collect is given.
func gauge[S any](name, help string, value func(S) float64, labels ...string) family[S] {
	return family[S]{&kind{describe(name, help, labels...), false}, []sample[S]{{nil, value}}}
}

// gauges is a family with a label of its own.
func gauges[S any](key, name, help string, all by[S], labels ...string) family[S] {
	f := family[S]{kind: &kind{describe(name, help, append(labels, key)...), false}}
	for _, s := range all {
		f.samples = append(f.samples, sample[S]{label(key, s.label), s.value})
	}
	return f
}

// counter is gauge for what only grows.
func counter[S any](name, help string, value func(S) float64, labels ...string) family[S] {
	f := gauge(name, help, value, labels...)
	f.counter = true
	return f
}

// counters is gauges for what only grows.
func counters[S any](key, name, help string, all by[S], labels ...string) family[S] {
	f := gauges(key, name, help, all, labels...)
	f.counter = true
	return f
}

// collect shows what the metrics of the list say of from. The labels, which are in the order of
// their names, are those of from.
func (l list[S]) collect(ch chan<- prometheus.Metric, from S, labels ...*dto.LabelPair) {
	for _, f := range l {
		for _, s := range f.samples {
			value := s.value(from)
			if math.IsNaN(value) {
				continue
			}
			all := labels
			if s.label != nil {
				at, _ := slices.BinarySearchFunc(labels, s.label,
					func(a, b *dto.LabelPair) int { return strings.Compare(*a.Name, *b.Name) })
				all = slices.Concat(labels[:at], []*dto.LabelPair{s.label}, labels[at:])
			}
			ch <- &metric{f.kind, all, value}
		}
	}
}

// shownIf is a value that is shown only on a condition.
func shownIf(shown bool, value float64) float64 {
	if !shown {
		return math.NaN()
	}
	return value
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// described has every family of the package. It is complete when the package is
// initialized.
var described []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	described = append(described, d)
	return d
}

// metric is a value of a sample at the time of a scrape. There may be tens of
// thousands of them, so labels are shared between the metrics that have them in
// common.
type metric struct {
	*kind
	labels []*dto.LabelPair
	value  float64
}

func (m *metric) Desc() *prometheus.Desc { return m.desc }

func (m *metric) Write(out *dto.Metric) error {
	out.Label = m.labels
	if m.counter {
		out.Counter = &dto.Counter{Value: &m.value}
	} else {
		out.Gauge = &dto.Gauge{Value: &m.value}
	}
	return nil
}

func label(name, value string) *dto.LabelPair {
	return &dto.LabelPair{Name: &name, Value: &value}
}
