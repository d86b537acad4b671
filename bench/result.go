package bench

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"trellis/bench/internal/quantity"
)

// A Result is what load.Run found out.
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
	// ServerLocal tells that the server's CPU time and memory come from the kernel, because it runs on this machine.
	ServerLocal bool           `json:"server_local"`
	Metrics     []MetricResult `json:"metrics"`
	// Unbegun is the number of units of an open loop that were due and could not begin in time. They count with the time
	// that they had waited when they were given up.
	Unbegun    int64    `json:"units_unbegun,omitempty"`
	Violations []Report `json:"violations,omitempty"`
	// JobsLeft is the number of jobs that the load left in the server, before they were taken out.
	JobsLeft int64 `json:"-"`
	// Intervals are what each thread recorded in each second, in the order of the seconds, when Config.Log was set.
	Intervals []Interval `json:"-"`
}

// An Interval holds the durations of one metric that were recorded in one piece of the time.
type Interval struct {
	Metric     string
	Start, End time.Time
	Durations  *hdr.PackedHistogram // nanoseconds
}

// A Summary holds the figures of a run that are compared between runs. All are float64, which Result relies on.
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
	// GeneratorBusy, from 0 to 1, is the part of a core that the busiest thread of the generator used, or the part of the
	// processors they are bound to that all threads used, whichever is more.
	GeneratorBusy float64 `json:"generator_busy"`
	// OthersBusy, from 0 to 1, is the part of the server's processors, or of the generator's, whichever is more, that
	// other processes or a hypervisor had. It is a lower bound.
	OthersBusy float64 `json:"others_busy"`
	// UnitP50, UnitP99 and UnitP999 are percentiles of the time of a unit in nanoseconds.
	UnitP50  float64 `json:"unit_p50"`
	UnitP99  float64 `json:"unit_p99"`
	UnitP999 float64 `json:"unit_p999"`
	// BytesPerConn is the growth of the server's resident memory for each connection, from before they are made until the
	// load has ended and all are still open; where the load leaves jobs, until the connections are ready. BytesPerJob is
	// the growth from then on, for each job left.
	BytesPerConn float64 `json:"bytes_per_connection,omitempty"`
	BytesPerJob  float64 `json:"bytes_per_job,omitempty"`
}

// A MetricResult describes the durations of a metric in nanoseconds. Count of them began or were due in the recorded
// time, whether or not they ended in it; Rate counts those that ended in it.
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

// Names of metrics that are not commands. Other metrics have the name of a command, or "connect".
const (
	// HandoverMetric is the time from put to RESERVED.
	HandoverMetric = "put to reserved"
	// LateMetric is how much later than its delay or its timeout said something happened.
	LateMetric = "late by"
	// UnitMetric is the time of a unit of the scenario, in an open loop from the moment when it was due.
	UnitMetric = "whole unit"
)

// Memory is measured from these numbers on. Below them, pages that the server takes and gives back for other reasons
// outweigh it.
const (
	MemoryConns = 1000
	MemoryJobs  = 20000
)

const (
	// generatorFull is how much of its core a thread of the generator may use before the figures say more about the
	// generator than about the server.
	generatorFull = 0.95
	// othersMuch is how much of the processors others may use before the machine is called busy.
	othersMuch = 0.05
	// keptUp is the part of the units due in an open loop that must end in time for the rate to be called reached.
	keptUp = 0.98
)

// GeneratorFull reports whether the generator's core was full: the rate is then the
// generator's limit, not the server's.
func (r *RunResult) GeneratorFull() bool { return r.GeneratorBusy >= generatorFull }

// MachineBusy reports whether other processes or a hypervisor had much of the processors of the server or of the
// generator.
func (r *RunResult) MachineBusy() bool { return r.OthersBusy > othersMuch }

// Behind reports whether the server did not keep up with the rate of an open loop, in units a second.
func (r *RunResult) Behind(rate float64) bool { return r.UnitRate < keptUp*rate }

// NewResult returns the result of runs of cfg, at least one, with the medians, the least and the greatest figures.
func NewResult(cfg Config, runs []RunResult) *Result {
	r := &Result{Config: cfg, Runs: runs}
	r.summarise()
	return r
}

// Metric returns the figures of a metric by its name, nil when the run has none.
func (r *RunResult) Metric(name string) *MetricResult {
	i := slices.IndexFunc(r.Metrics, func(m MetricResult) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Metrics[i]
}

// Err returns an error that wraps ErrBroken when a run saw a violation.
func (r *Result) Err() error {
	var all []string
	for i, run := range r.Runs {
		for _, v := range run.Violations {
			all = append(all,
				fmt.Sprintf("run %d: %d times %s, such as: %s", i+1, v.Count, v.Kind, strings.Join(v.Examples, "; ")))
		}
	}
	if all == nil {
		return nil
	}
	return fmt.Errorf("%w\n%s", ErrBroken, strings.Join(all, "\n"))
}

func (r *Result) summarise() {
	figure := func(s *Summary, i int) reflect.Value { return reflect.ValueOf(s).Elem().Field(i) }
	all := make([]float64, len(r.Runs))
	for f := range reflect.TypeFor[Summary]().NumField() {
		for i := range r.Runs {
			all[i] = figure(&r.Runs[i].Summary, f).Float()
		}
		slices.Sort(all)
		figure(&r.Least, f).SetFloat(all[0])
		figure(&r.Median, f).SetFloat(quantity.Median(all))
		figure(&r.Most, f).SetFloat(all[len(all)-1])
	}
}
