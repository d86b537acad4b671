package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
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
		unit unit
		of   func(*Summary) float64
	}{
		{"commands", perSecond, func(s *Summary) float64 { return s.CommandRate }},
		{"units", perSecond, func(s *Summary) float64 { return s.UnitRate }},
		{"server CPU a command", nanoseconds, func(s *Summary) float64 { return s.CPUPerCommand }},
		{"p50 of a unit", nanoseconds, func(s *Summary) float64 { return s.UnitP50 }},
		{"p99 of a unit", nanoseconds, func(s *Summary) float64 { return s.UnitP99 }},
		{"p99.9 of a unit", nanoseconds, func(s *Summary) float64 { return s.UnitP999 }},
	} {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t\n", f.name, f.unit.format(f.of(&r.Median)), f.unit.format(f.of(&r.Least)), f.unit.format(f.of(&r.Most)))
	}
	return tw.Flush()
}

// keptUp is the part of the units due in an open loop that must have ended for the rate to be called reached.
const keptUp = 0.98

func (r *RunResult) writeTable(out io.Writer, cfg *Config) error {
	fmt.Fprintf(out, "%s: %s commands/s, %s units/s in %.2f s\n", cfg.Scenario, thousands(r.CommandRate), thousands(r.UnitRate), r.Seconds)
	if cfg.Rate > 0 && r.UnitRate < keptUp*cfg.Rate {
		fmt.Fprintf(out, "NOT REACHED: %s units/s were due\n", thousands(cfg.Rate))
	}
	if r.Unbegun > 0 {
		fmt.Fprintf(out, "GIVEN UP: %s units that were due had not begun %v later; they count with the time waited so far\n",
			thousands(float64(r.Unbegun)), time.Duration(longestTail))
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
	case r.GeneratorBusy >= generatorFull:
		fmt.Fprintf(out, "generator: %.0f %% of a core - FULL: the rate is the generator's limit, not the server's\n", r.GeneratorBusy*100)
	default:
		fmt.Fprintf(out, "generator: %.0f %% of a core\n", r.GeneratorBusy*100)
	}
	if r.OthersBusy > othersMuch {
		fmt.Fprintf(out, "BUSY MACHINE: others had at least %.0f %% of the processors of the server or of the generator\n", r.OthersBusy*100)
	}
	if r.BytesPerConn > 0 {
		fmt.Fprintf(out, "server memory: %.2f KB a connection\n", r.BytesPerConn/1024)
	}
	if r.BytesPerJob > 0 {
		fmt.Fprintf(out, "server memory: %.0f B a job (%d jobs)\n", r.BytesPerJob, r.left)
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "\tcount\tper second\tp50\tp90\tp99\tp99.9\tmax\t\n")
	for _, m := range r.Metrics {
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t\n", m.Name, m.Count, thousands(m.Rate),
			short(m.P50), short(m.P90), short(m.P99), short(m.P999), short(m.Max))
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

// short writes nanoseconds with three digits and a unit.
func short(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", float64(ns)/1e6)
	}
	return fmt.Sprintf("%.3g us", float64(ns)/1e3)
}
