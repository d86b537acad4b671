package bench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// WriteJSON writes all figures of all runs as one JSON object.
func (r *Result) WriteJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

var csvHeader = []string{
	"scenario", "run", "metric", "count", "per_second", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "p99.9_ns", "max_ns",
	"commands_per_second", "server_cpu_ns_per_command", "generator_busy", "bytes_per_connection", "bytes_per_job",
	"violations",
}

// WriteCSV writes one line for every metric of every run, with the run's own figures repeated in each.
func (r *Result) WriteCSV(out io.Writer) error {
	w := csv.NewWriter(out)
	if err := w.Write(csvHeader); err != nil {
		return err
	}
	float := func(f float64) string { return strconv.FormatFloat(f, 'f', 3, 64) }
	whole := func(n int64) string { return strconv.FormatInt(n, 10) }
	for i, run := range r.Runs {
		violations := int64(0)
		for _, v := range run.Violations {
			violations += v.Count
		}
		metrics := run.Metrics
		if len(metrics) == 0 {
			metrics = []MetricResult{{}}
		}
		for _, m := range metrics {
			err := w.Write([]string{
				r.Config.Scenario, strconv.Itoa(i + 1), m.Name, whole(m.Count), float(m.Rate), float(m.Mean),
				whole(m.P50), whole(m.P90), whole(m.P99), whole(m.P999), whole(m.Max),
				float(run.CommandRate), float(run.CPUPerCommand), float(run.GeneratorBusy),
				float(run.BytesPerConn), float(run.BytesPerJob), whole(violations),
			})
			if err != nil {
				return err
			}
		}
	}
	w.Flush()
	return w.Error()
}

// WriteLog writes a HdrHistogram log, version 1.3: for every second of every run a line for each metric and thread,
// tagged with the metric's name. Values are nanoseconds. The run must have been configured with Log.
func (r *Result) WriteLog(out io.Writer) error {
	w := hdr.NewHistogramLogWriter(out)
	err := w.OutputComment(fmt.Sprintf("[trellis bench run %s, address %s]", r.Config.Scenario, r.Config.Addr))
	if err == nil {
		err = w.OutputLogFormatVersion()
	}
	if err == nil && len(r.Runs) > 0 {
		err = w.OutputStartTime(r.Runs[0].Start.UnixMilli())
	}
	if err == nil {
		err = w.OutputLegend()
	}
	for _, run := range r.Runs {
		for _, v := range run.Intervals {
			if err != nil {
				return err
			}
			// Tags must not have spaces.
			v.Durations.SetTag(strings.ReplaceAll(v.Metric, " ", "-"))
			v.Durations.SetStartTimeMs(v.Start.UnixMilli())
			v.Durations.SetEndTimeMs(v.End.UnixMilli())
			err = w.OutputIntervalPackedHistogram(v.Durations)
		}
	}
	return err
}
