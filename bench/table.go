package bench

import (
	"fmt"
	"io"
	"text/tabwriter"

	"trellis/bench/internal/quantity"
)

// WriteTable writes the result for people.
func (r *Result) WriteTable(out io.Writer) error {
	for i := range r.Runs {
		if err := r.Runs[i].writeTable(out, &r.Config); err != nil {
			return err
		}
	}
	if len(r.Runs) < 2 {
		return nil
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "%d runs\tmedian\tleast\tmost\t\n", len(r.Runs))
	for _, f := range []struct {
		name string
		unit quantity.Unit
		of   func(*Summary) float64
	}{
		{"commands", quantity.PerSecond, func(s *Summary) float64 { return s.CommandRate }},
		{"units", quantity.PerSecond, func(s *Summary) float64 { return s.UnitRate }},
		{"server CPU a command", quantity.Nanoseconds, func(s *Summary) float64 { return s.CPUPerCommand }},
		{"p50 of a unit", quantity.Nanoseconds, func(s *Summary) float64 { return s.UnitP50 }},
		{"p99 of a unit", quantity.Nanoseconds, func(s *Summary) float64 { return s.UnitP99 }},
		{"p99.9 of a unit", quantity.Nanoseconds, func(s *Summary) float64 { return s.UnitP999 }},
	} {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t\n",
			f.name, f.unit.Format(f.of(&r.Median)), f.unit.Format(f.of(&r.Least)), f.unit.Format(f.of(&r.Most)))
	}
	return tw.Flush()
}

func (r *RunResult) writeTable(out io.Writer, cfg *Config) error {
	fmt.Fprintf(out, "%s: %s commands/s, %s units/s in %.2f s\n",
		cfg.Scenario, quantity.Whole(r.CommandRate), quantity.Whole(r.UnitRate), r.Seconds)
	if cfg.Rate > 0 && r.Behind(cfg.Rate) {
		fmt.Fprintf(out, "NOT REACHED: %s units/s were due\n", quantity.Whole(cfg.Rate))
	}
	if r.Unbegun > 0 {
		fmt.Fprintf(out, "GIVEN UP: %s units that were due had not begun %v later; they count with the time waited so far\n",
			quantity.Whole(float64(r.Unbegun)), LongestTail)
	}
	where := "/proc"
	if !r.ServerLocal {
		where = "stats"
	}
	if r.ServerLocal || r.ServerBusy > 0 {
		fmt.Fprintf(out, "server CPU: %.3f us/command (user %.3f, sys %.3f; from %s), %.0f %% of a core\n",
			r.CPUPerCommand/1e3, r.UserPerCommand/1e3, r.SysPerCommand/1e3, where, r.ServerBusy*100)
	} else {
		fmt.Fprintln(out, "server CPU: unknown")
	}
	switch {
	case r.GeneratorBusy <= 0:
		fmt.Fprintln(out, "generator: unknown")
	case r.GeneratorFull():
		fmt.Fprintf(out, "generator: %.0f %% of a core - FULL: the rate is the generator's limit, not the server's\n",
			r.GeneratorBusy*100)
	default:
		fmt.Fprintf(out, "generator: %.0f %% of a core\n", r.GeneratorBusy*100)
	}
	if r.MachineBusy() {
		fmt.Fprintf(out, "BUSY MACHINE: others had at least %.0f %% of the processors of the server or of the generator\n",
			r.OthersBusy*100)
	}
	if r.BytesPerConn > 0 {
		fmt.Fprintf(out, "server memory: %.2f KB a connection\n", r.BytesPerConn/1024)
	}
	if r.BytesPerJob > 0 {
		fmt.Fprintf(out, "server memory: %.0f B a job (%d jobs)\n", r.BytesPerJob, r.JobsLeft)
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "\tcount\tper second\tp50\tp90\tp99\tp99.9\tmax\t\n")
	for _, m := range r.Metrics {
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t\n", m.Name, m.Count, quantity.Whole(m.Rate),
			quantity.Duration(m.P50), quantity.Duration(m.P90), quantity.Duration(m.P99), quantity.Duration(m.P999),
			quantity.Duration(m.Max))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, v := range r.Violations {
		fmt.Fprintf(out, "VIOLATION: %s, %d times\n", v.Kind, v.Count)
		for _, e := range v.Examples {
			fmt.Fprintf(out, "  %s\n", e)
		}
	}
	return nil
}
