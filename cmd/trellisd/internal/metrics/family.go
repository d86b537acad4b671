package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// family is what metrics of one name have in common.
type family struct {
	desc    *prometheus.Desc
	counter bool
}

// described has every family of the package. It is complete when the package is
// initialized.
var described []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	described = append(described, d)
	return d
}

func gauge(name, help string, labels ...string) *family {
	return &family{desc: describe(name, help, labels...)}
}

func counter(name, help string, labels ...string) *family {
	return &family{desc: describe(name, help, labels...), counter: true}
}

// metric is a value of a family at the time of a scrape. There may be tens of
// thousands of them, so labels are shared between the metrics that have them in
// common.
type metric struct {
	*family
	labels []*dto.LabelPair
	value  float64
}

// with makes a metric of a value. The labels are in the order of their names.
func (f *family) with(value float64, labels ...*dto.LabelPair) prometheus.Metric {
	return &metric{f, labels, value}
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

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
