package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// A Result is what Run found out.
type Result struct {
	// Config is the configuration with all defaults.
	Config Config      `json:"config"`
	Runs   []RunResult `json:"runs"`
	// Median, Least and Most are taken over the runs, figure by figure.
	Median Summary `json:"median"`
	Least  Summary `json:"least"`
	Most   Summary `json:"most"`
}

// A RunResult is what one run found out. Rates are per second, times in nanoseconds, sizes in bytes. What could not be
// measured is zero.
type RunResult struct {
	Start time.Time `json:"start"`
	Summary
	ServerLocal bool           `json:"server_local"`
	Metrics     []MetricResult `json:"metrics"`
	// Unbegun is the number of units of an open loop that were due and could not begin in time. They count with the time
	// that they had waited when they were given up.
	Unbegun    int64    `json:"units_unbegun,omitempty"`
	Violations []Report `json:"violations,omitempty"`

	left      int64 // jobs that were in the server at the end
	intervals []interval
	base      time.Time // of the intervals' times
}

// A Summary holds the figures of a run that are compared between runs.
type Summary struct {
	Seconds        float64 `json:"seconds"`
	Commands       float64 `json:"commands"`
	Units          float64 `json:"units"`
	CommandRate    float64 `json:"commands_per_second"`
	UnitRate       float64 `json:"units_per_second"`
	UserPerCommand float64 `json:"server_user_ns_per_command"`
	SysPerCommand  float64 `json:"server_sys_ns_per_command"`
	CPUPerCommand  float64 `json:"server_cpu_ns_per_command"`
	ServerBusy     float64 `json:"server_cores_busy"`
	// GeneratorBusy is how much of its core the fullest thread of the generator used, from 0 to 1.
	GeneratorBusy float64 `json:"generator_busy"`
	// OthersBusy is how much of the processors of the server, or of the generator, other processes or a hypervisor
	// had, whichever is more; from 0 to 1. It is a lower bound.
	OthersBusy float64 `json:"others_busy"`
	// UnitP50, UnitP99 and UnitP999 are percentiles of the time of a unit in nanoseconds.
	UnitP50  float64 `json:"unit_p50"`
	UnitP99  float64 `json:"unit_p99"`
	UnitP999 float64 `json:"unit_p999"`
	// BytesPerConn is the growth of the server's resident memory from before the connections are made until the end of
	// the load, while all are open; where the load leaves jobs, until the connections are ready. BytesPerJob is what it
	// grows by from then on, for each of these jobs.
	BytesPerConn float64 `json:"bytes_per_connection,omitempty"`
	BytesPerJob  float64 `json:"bytes_per_job,omitempty"`
}

// A MetricResult describes the durations of a metric in nanoseconds: of Count that were begun or due in the recorded time,
// also of those that ended after it. Rate is of what ended in it.
type MetricResult struct {
	Name  string  `json:"name"`
	Count int64   `json:"count"`
	Rate  float64 `json:"per_second"`
	Mean  float64 `json:"mean"`
	P50   int64   `json:"p50"`
	P90   int64   `json:"p90"`
	P99   int64   `json:"p99"`
	P999  int64   `json:"p999"`
	Max   int64   `json:"max"`
}

// generatorFull is how busy a thread of the generator may be before the figures say more about it than about the server.
const generatorFull = 0.95

// othersMuch is how much others may have of the processors before the machine is called busy.
const othersMuch = 0.05

// collect takes the figures from the workers, which have ended. There are none when one ended before it recorded.
func (r *RunResult) collect(s *shared, workers []*worker) {
	if slices.ContainsFunc(workers, func(w *worker) bool { return w.startedAt == 0 }) {
		return
	}
	var rec recorder
	var ended [numMetrics]int64
	start, end := int64(math.MaxInt64), int64(0)
	for _, w := range workers {
		r.Commands += float64(w.commands)
		r.Unbegun += w.unbegun
		start, end = min(start, w.startedAt), max(end, w.endedAt)
		if took := w.endedAt - w.startedAt; took > 0 {
			r.GeneratorBusy = max(r.GeneratorBusy, float64(w.busy-w.spun)/float64(took))
		}
		for m, n := range w.ended {
			ended[m] += n
		}
		rec.merge(&w.rec)
	}
	r.Units = float64(ended[metricUnit])
	r.Start = s.base.Add(time.Duration(start))
	r.Seconds = max(float64(end-start), 1) / 1e9
	r.CommandRate, r.UnitRate = r.Commands/r.Seconds, r.Units/r.Seconds
	used := float64(s.atEnd.total - s.atStart.total)
	if r.Commands > 0 {
		user, sys := float64(s.atEnd.user-s.atStart.user), float64(s.atEnd.sys-s.atStart.sys)
		r.CPUPerCommand = used / r.Commands
		r.UserPerCommand = r.CPUPerCommand * user / max(user+sys, 1)
		r.SysPerCommand = r.CPUPerCommand - r.UserPerCommand
	}
	r.ServerBusy = used / 1e9 / r.Seconds
	r.OthersBusy = s.meter.others(&s.atStart, &s.atEnd)
	r.ServerLocal = s.meter.pid != 0
	r.intervals, r.base = rec.intervals, s.base
	for m, h := range rec.hists {
		if h == nil || h.TotalCount() == 0 {
			continue
		}
		q := h.ValueAtPercentilesSlice([]float64{50, 90, 99, 99.9})
		r.Metrics = append(r.Metrics, MetricResult{
			Name: metricNames[m], Count: h.TotalCount(), Rate: float64(ended[m]) / r.Seconds,
			Mean: h.Mean(), P50: q[0], P90: q[1], P99: q[2], P999: q[3], Max: h.Max(),
		})
	}
	if u := r.Metric(UnitMetric); u != nil {
		r.UnitP50, r.UnitP99, r.UnitP999 = float64(u.P50), float64(u.P99), float64(u.P999)
	}
}

// Below these numbers, the pages that come and go for other reasons are more than what is measured.
const (
	enoughConns = 1000
	enoughJobs  = 20000
)

func (r *RunResult) memoryPerConn(before, after int64, conns int) {
	if before > 0 && after > 0 && conns >= enoughConns {
		r.BytesPerConn = float64(after-before) / float64(conns)
	}
}

func (r *RunResult) memoryPerJob(before, after, jobs int64) {
	if before > 0 && after > 0 && jobs >= enoughJobs {
		r.BytesPerJob = float64(after-before) / float64(jobs)
	}
}

// Metric returns the figures of a metric by its name, nil when the run has none.
func (r *RunResult) Metric(name string) *MetricResult {
	i := slices.IndexFunc(r.Metrics, func(m MetricResult) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Metrics[i]
}

// ErrBroken is returned by Result.Err when the server broke its promises.
var ErrBroken = errors.New("the server broke the protocol")

// Err returns an error that wraps ErrBroken when a run saw a violation.
func (r *Result) Err() error {
	var all []string
	for i, run := range r.Runs {
		for _, v := range run.Violations {
			all = append(all, fmt.Sprintf("run %d: %d times %s, such as: %s", i+1, v.Count, v.Kind, strings.Join(v.Examples, "; ")))
		}
	}
	if all == nil {
		return nil
	}
	return fmt.Errorf("%w\n%s", ErrBroken, strings.Join(all, "\n"))
}

// summarise compares the runs figure by figure.
func (r *Result) summarise() {
	all := make([]float64, len(r.Runs))
	for _, f := range summaryFields {
		for i := range r.Runs {
			all[i] = *f(&r.Runs[i].Summary)
		}
		slices.Sort(all)
		*f(&r.Least), *f(&r.Median), *f(&r.Most) = all[0], median(all), all[len(all)-1]
	}
}

var summaryFields = []func(*Summary) *float64{
	func(s *Summary) *float64 { return &s.Seconds },
	func(s *Summary) *float64 { return &s.Commands },
	func(s *Summary) *float64 { return &s.Units },
	func(s *Summary) *float64 { return &s.CommandRate },
	func(s *Summary) *float64 { return &s.UnitRate },
	func(s *Summary) *float64 { return &s.UserPerCommand },
	func(s *Summary) *float64 { return &s.SysPerCommand },
	func(s *Summary) *float64 { return &s.CPUPerCommand },
	func(s *Summary) *float64 { return &s.ServerBusy },
	func(s *Summary) *float64 { return &s.GeneratorBusy },
	func(s *Summary) *float64 { return &s.OthersBusy },
	func(s *Summary) *float64 { return &s.UnitP50 },
	func(s *Summary) *float64 { return &s.UnitP99 },
	func(s *Summary) *float64 { return &s.UnitP999 },
	func(s *Summary) *float64 { return &s.BytesPerConn },
	func(s *Summary) *float64 { return &s.BytesPerJob },
}

// median returns the middle of sorted numbers.
func median(sorted []float64) float64 {
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
