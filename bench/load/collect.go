package load

import (
	"math"
	"slices"
	"time"

	"trellis/bench"
)

// collect fills r with the figures of the workers, which have ended; with none if one of them ended before it recorded.
func (s *shared) collect(r *bench.RunResult, workers []*worker) {
	if slices.ContainsFunc(workers, func(w *worker) bool { return w.startedAt == 0 }) {
		return
	}
	var rec recorder
	var ended [numMetrics]int64
	start, end := int64(math.MaxInt64), int64(0)
	busy := 0.0 // of all threads, as a part of one processor
	for _, w := range workers {
		r.Commands += float64(w.commands)
		r.Unbegun += w.unbegun
		start, end = min(start, w.startedAt), max(end, w.endedAt)
		if took := w.endedAt - w.startedAt; took > 0 {
			one := float64(w.busy-w.spun) / float64(took)
			busy += one
			r.GeneratorBusy = max(r.GeneratorBusy, one)
		}
		for m, n := range w.ended {
			ended[m] += n
		}
		rec.merge(&w.rec)
	}
	if n := len(s.cfg.CPUs); n > 0 { // several threads may share one
		r.GeneratorBusy = max(r.GeneratorBusy, busy/float64(n))
	}
	r.Units = float64(ended[metricUnit])
	r.Start = s.base.Add(time.Duration(start))
	r.Seconds = max(float64(end-start), 1) / 1e9
	r.CommandRate, r.UnitRate = r.Commands/r.Seconds, r.Units/r.Seconds
	used := float64(s.atEnd.server.Total - s.atStart.server.Total)
	if r.Commands > 0 {
		user, sys := float64(s.atEnd.server.User-s.atStart.server.User), float64(s.atEnd.server.Sys-s.atStart.server.Sys)
		r.CPUPerCommand = used / r.Commands
		r.UserPerCommand = r.CPUPerCommand * user / max(user+sys, 1)
		r.SysPerCommand = r.CPUPerCommand - r.UserPerCommand
	}
	r.ServerBusy = used / 1e9 / r.Seconds
	r.OthersBusy = s.meter.others(&s.atStart, &s.atEnd)
	r.ServerLocal = s.meter.pid != 0
	second := func(v bench.Interval) int64 { return int64(v.Start.Sub(s.base) / logInterval) }
	slices.SortStableFunc(rec.intervals, func(a, b bench.Interval) int { return int(second(a) - second(b)) })
	r.Intervals = rec.intervals
	for m, h := range rec.hists {
		if h == nil || h.TotalCount() == 0 {
			continue
		}
		q := h.ValueAtPercentilesSlice([]float64{50, 90, 99, 99.9})
		r.Metrics = append(r.Metrics, bench.MetricResult{
			Name: metricNames[m], Count: h.TotalCount(), Rate: float64(ended[m]) / r.Seconds,
			Mean: h.Mean(), P50: q[0], P90: q[1], P99: q[2], P999: q[3], Max: h.Max(),
		})
	}
	if u := r.Metric(bench.UnitMetric); u != nil {
		r.UnitP50, r.UnitP99, r.UnitP999 = float64(u.P50), float64(u.P99), float64(u.P999)
	}
}

// growth is how much the server's memory grew for each of n, 0 when a size is not known, which is zero, or when they
// are too few for their memory to stand out.
func growth(before, after, n, least int64) float64 {
	if before <= 0 || after <= 0 || n < least {
		return 0
	}
	return float64(after-before) / float64(n)
}
