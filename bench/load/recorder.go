package load

import (
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"trellis/bench"
)

// The histograms hold nanoseconds up to ten minutes with three significant digits.
const longestLatency = 600e9

func newHistogram() *hdr.Histogram { return hdr.New(1, longestLatency, 3) }

// A recorder collects durations for one worker.
type recorder struct {
	hists [numMetrics]*hdr.Histogram
	// n durations of value, not in hists yet: replies of one read to commands of one write have the same duration.
	metric metric
	value  int64
	n      int64
	// With a log, hists hold only what came after the last cut, and the rest is in totals and intervals.
	totals    [numMetrics]*hdr.Histogram
	intervals []bench.Interval
	base      time.Time // when the run's clock began
	cutAt     int64     // when the present interval began, on that clock
}

const logInterval = time.Second

func (r *recorder) add(m metric, v int64) {
	if m == r.metric && v == r.value {
		r.n++
		return
	}
	r.flush()
	r.metric, r.value, r.n = m, v, 1
}

func (r *recorder) flush() {
	if r.n == 0 {
		return
	}
	h := r.hists[r.metric]
	if h == nil {
		h = newHistogram()
		r.hists[r.metric] = h
	}
	_ = h.RecordValues(min(max(r.value, 0), longestLatency), r.n) // cannot fail within these bounds
	r.n = 0
}

func (r *recorder) cut(now int64) {
	r.flush()
	for m, h := range r.hists {
		if h == nil || h.TotalCount() == 0 {
			continue
		}
		p := hdr.NewPacked(1, longestLatency, 3)
		p.MergeFrom(h)
		r.intervals = append(r.intervals, bench.Interval{
			Metric: metricNames[m], Durations: p,
			Start: r.base.Add(time.Duration(r.cutAt)), End: r.base.Add(time.Duration(now)),
		})
		if r.totals[m] == nil {
			r.totals[m] = newHistogram()
		}
		r.totals[m].Merge(h)
		h.Reset()
	}
	r.cutAt = now
}

func (r *recorder) merge(o *recorder) {
	o.flush()
	for m := range o.hists {
		for _, h := range []*hdr.Histogram{o.hists[m], o.totals[m]} {
			switch {
			case h == nil:
			case r.hists[m] == nil:
				r.hists[m] = h
			default:
				r.hists[m].Merge(h)
			}
		}
	}
	r.intervals = append(r.intervals, o.intervals...)
}
