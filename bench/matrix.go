package bench

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// A value takes a figure out of a run.
type value func(*RunResult) float64

func commandRate(r *RunResult) float64   { return r.CommandRate }
func cpuPerCommand(r *RunResult) float64 { return r.CPUPerCommand }
func runSeconds(r *RunResult) float64    { return r.Seconds }
func bytesPerConn(r *RunResult) float64  { return r.BytesPerConn }
func bytesPerJob(r *RunResult) float64   { return r.BytesPerJob }
func unitP50(r *RunResult) float64       { return r.UnitP50 }
func unitP99(r *RunResult) float64       { return r.UnitP99 }
func unitP999(r *RunResult) float64      { return r.UnitP999 }

// p50 is the median time of a command.
func p50(command string) value {
	return func(r *RunResult) float64 {
		if m := r.Metric(command); m != nil {
			return float64(m.P50)
		}
		return 0
	}
}

// A measured is a figure with where it comes from.
type measured struct {
	figure
	value value
}

var (
	rateFigure = measured{figure{name: "commands", unit: perSecond}, commandRate}
	cpuFigure  = measured{figure{name: "server CPU a command", unit: nanoseconds}, cpuPerCommand}
)

// with returns the figure with targets.
func (m measured) with(atLeast, aim target) measured {
	m.atLeast, m.aim = atLeast, aim
	return m
}

// loadRow is a row of one load on a fresh server that was started with the arguments args.
func loadRow(name, args string, cfg Config, figures ...measured) Row {
	r := Row{name: name}
	for _, f := range figures {
		r.figures = append(r.figures, f.figure)
	}
	r.measure = func(ctx context.Context, s *session) ([]float64, error) {
		if err := s.prepare(ctx, args, &cfg); err != nil {
			return nil, err
		}
		run, err := s.run(ctx, cfg)
		if err != nil {
			return nil, err
		}
		var values []float64
		for _, f := range figures {
			values = append(values, f.value(run))
		}
		return values, nil
	}
	return r
}

// prepare starts the server with room for the connections of cfg.
func (s *session) prepare(ctx context.Context, args string, cfg *Config) error {
	if err := raiseFileLimit(cfg.Conns + cfg.Idle + cfg.Waiting + 100); err != nil {
		return err
	}
	return s.start(ctx, args, s.ServerCPUs)
}

// timesRow is a row of two loads on one server; its figure is that of the second as a multiple of the first's.
func timesRow(name string, first, second Config, m measured, goal target) Row {
	return Row{
		name:    name,
		figures: []figure{{name: m.name + ", with / without", unit: timesItself, atLeast: goal, aim: goal}},
		measure: func(ctx context.Context, s *session) ([]float64, error) {
			if err := s.prepare(ctx, "", &second); err != nil {
				return nil, err
			}
			one, err := s.run(ctx, first)
			if err != nil {
				return nil, err
			}
			two, err := s.run(ctx, second)
			if err != nil {
				return nil, err
			}
			return []float64{m.value(two) / m.value(one)}, nil
		},
	}
}

// LoadRow is a row of one load, with the figures that most people want.
func LoadRow(cfg Config) Row {
	figures := []measured{
		rateFigure, cpuFigure,
		{figure{name: "p50 of a unit", unit: nanoseconds}, unitP50},
		{figure{name: "p99 of a unit", unit: nanoseconds}, unitP99},
		{figure{name: "p99.9 of a unit", unit: nanoseconds}, unitP999},
	}
	return loadRow(cfg.Scenario, "", cfg, figures...)
}

// matrixLoad is the load that most rows of a matrix vary: 50 connections, one command in flight on each, bodies of 100
// bytes, on a server that is thrown away afterwards.
func matrixLoad(scenario string, change func(*Config)) Config {
	cfg := Config{
		Scenario: scenario, Conns: 50, Size: fixedSize(100), Duration: 2 * time.Second, Warmup: 500 * time.Millisecond,
		Seed: 1,
	}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

// closedLoopRow is the row whose rate, on the first server, sets the rate of the open loop.
const closedLoopRow = "cycle, 50 connections"

// StandardMatrix returns the measurements of the README. They take less than ten minutes for two servers in three
// rounds.
func StandardMatrix() []Row {
	seconds := measured{figure{name: "time", unit: inSeconds}, runSeconds}
	conns := func(n int) func(*Config) { return func(c *Config) { c.Conns = n } }
	pipelined := func(c *Config) { c.Depth = 32 }
	rows := []Row{
		loadRow(closedLoopRow, "", matrixLoad("cycle", nil),
			cpuFigure.with(target{ratioBelow, 0.87}, target{ratioBelow, 0.75}), rateFigure),
		loadRow("cycle, 1,000 connections", "", matrixLoad("cycle", conns(1000)),
			cpuFigure.with(target{ratioBelow, 0.87}, target{ratioBelow, 0.72}), rateFigure),
		loadRow("cycle, 1 connection", "", matrixLoad("cycle", conns(1)),
			measured{figure{name: "p50 of a put", unit: nanoseconds}, p50("put")}.with(target{ratioBelow, 1.1}, target{ratioBelow, 1.0})),
		loadRow("cycle, 50 connections, 32 pipelined", "", matrixLoad("cycle", pipelined),
			rateFigure.with(target{ratioAbove, 12}, target{ratioAbove, 20}), cpuFigure),
		twoLoopsRow(matrixLoad("cycle", pipelined)),
		loadRow("cycle, 50 connections, 10,000 further tubes with a delayed job each", "",
			matrixLoad("cycle", func(c *Config) { c.FurtherTubes, c.Keep = 10000, true }),
			rateFigure.with(target{ratioAbove, 13}, target{ratioAbove, 18})),
		timesRow("cycle, 50 connections, 10,000 workers wait", matrixLoad("cycle", nil),
			matrixLoad("cycle", func(c *Config) { c.Waiting = 10000 }), cpuFigure, target{valueBelow, 1.03}),
		timesRow("cycle, 50 connections, 10,000 are idle", matrixLoad("cycle", nil),
			matrixLoad("cycle", func(c *Config) { c.Idle = 10000 }), cpuFigure, target{valueBelow, 1.03}),
		timesRow("cycle, 1 connection that holds 50,000 reservations", matrixLoad("cycle", conns(1)),
			matrixLoad("cycle", func(c *Config) { c.Conns, c.Held = 1, 50000 }),
			measured{figure{name: "p50 of a delete", unit: nanoseconds}, p50("delete")}, target{valueBelow, 1.1}),
		loadRow("put of 1,000,000 jobs, 50 connections, 32 pipelined", "",
			matrixLoad("put", func(c *Config) { c.Depth, c.Count, c.Warmup, c.Keep = 32, 1000000, 0, true }),
			seconds.with(target{ratioBelow, 1.0 / 10}, target{ratioBelow, 1.0 / 20}),
			measured{figure{name: "memory a job", unit: bytesEach}, bytesPerJob}.with(target{valueBelow, 220}, target{valueBelow, 160})),
		openLoopRow(matrixLoad("cycle", func(c *Config) { c.Duration = 5 * time.Second })),
		loadRow("10,000 idle connections", "",
			matrixLoad("idle", func(c *Config) { c.Conns, c.Duration, c.Warmup = 10000, 100*time.Millisecond, 0 }),
			measured{figure{name: "memory a connection", unit: kilobytes}, bytesPerConn}.with(target{valueBelow, 0.9 * 1024}, target{valueBelow, 0.6 * 1024})),
	}
	rows = append(rows, logRows("-b {dir} -f 0", "synced before every reply")...)
	rows = append(rows, logRows("-b {dir}", "default syncing")...)
	return append(rows, recoveryRow("-b {dir}", "default syncing"))
}

// DurabilityMatrix returns the measurements of the binlog: in each mode of syncing, what puts and cycles cost, and what
// it takes to come back after a crash.
func DurabilityMatrix() []Row {
	var rows []Row
	for _, mode := range []struct{ args, name string }{
		{"", "none"},
		{"-b {dir} -F", "never synced"},
		{"-b {dir}", "default syncing"},
		{"-b {dir} -f 0", "synced before every reply"},
	} {
		rows = append(rows, logRows(mode.args, mode.name)...)
		if mode.args != "" {
			rows = append(rows, recoveryRow(mode.args, mode.name))
		}
	}
	return rows
}

// logRows are the rows of a server that was started with args, which say how it logs.
func logRows(args, mode string) []Row {
	name := func(load string) string { return "binlog, " + mode + ": " + load }
	keep := func(c *Config) { c.Keep = true }
	return []Row{
		loadRow(name("put, 50 connections"), args, matrixLoad("put", keep), rateFigure),
		loadRow(name("put, 1,000 connections"), args, matrixLoad("put", func(c *Config) { c.Conns, c.Keep = 1000, true }), rateFigure),
		loadRow(name("cycle, 50 connections, 32 pipelined"), args, matrixLoad("cycle", func(c *Config) { c.Depth = 32 }), rateFigure),
	}
}

// recoveryRow kills a server with a million jobs and starts it again.
func recoveryRow(args, mode string) Row {
	cfg := matrixLoad("put", func(c *Config) { c.Depth, c.Count, c.Warmup = 32, 1000000, 0 })
	if strings.Contains(args, "-f 0") {
		cfg.Count = 100000 // the puts would take minutes
	}
	return RecoveryRow(fmt.Sprintf("binlog, %s: recovery of %s jobs after a kill", mode, thousands(float64(cfg.Count))), args, cfg)
}

// RecoveryRow is a row that loads a server with the jobs of cfg, which must be puts that end by a count, kills it and
// starts it again on the same directory. args, with {dir} in them, make the server keep a log.
func RecoveryRow(name, args string, cfg Config) Row {
	return Row{
		name:    name,
		figures: []figure{{name: "time until stats are answered", unit: inSeconds}, {name: "disk", unit: megabytes}},
		measure: func(ctx context.Context, s *session) ([]float64, error) {
			r, err := s.recovery(ctx, args, cfg)
			if err != nil {
				return nil, err
			}
			return []float64{r.Took.Seconds(), float64(r.Disk)}, nil
		},
	}
}

// twoLoopsRow compares a server on two processors with itself on one.
func twoLoopsRow(cfg Config) Row {
	goal := target{valueAbove, 1.5}
	return Row{
		name:     "cycle, 50 connections, 32 pipelined, two processors for the server",
		figures:  []figure{{name: "commands, with two / with one", unit: timesItself, atLeast: goal, aim: goal}},
		needCPUs: 3,
		measure: func(ctx context.Context, s *session) ([]float64, error) {
			var rates [2]float64
			for i := range rates {
				if err := s.start(ctx, "", s.allCPUs()[:i+1]); err != nil {
					return nil, err
				}
				on := *s
				loaded := *s.Comparison
				loaded.LoadCPUs = s.allCPUs()[2:]
				on.Comparison = &loaded
				run, err := on.run(ctx, cfg)
				if err != nil {
					return nil, err
				}
				rates[i] = run.CommandRate
			}
			return []float64{rates[1] / rates[0]}, nil
		},
	}
}

// openLoopRow puts on half of the load that the first server can bear, at a fixed rate.
func openLoopRow(cfg Config) Row {
	const name = "cycle, 50 connections, open loop at half of the first server's limit"
	f := figure{name: "p99.9 of a unit", unit: nanoseconds, atLeast: target{ratioBelow, 1}, aim: target{ratioBelow, 0.5}}
	return Row{
		name:    name,
		figures: []figure{f, {name: "p50 of a unit", unit: nanoseconds}},
		measure: func(ctx context.Context, s *session) ([]float64, error) {
			limit := s.table.find(closedLoopRow, rateFigure.name)
			if limit == 0 {
				return nil, fmt.Errorf("the row %q must be measured before", closedLoopRow)
			}
			cfg := cfg
			cfg.Rate = limit / 3 / 2 // a unit is three commands
			if err := s.prepare(ctx, "", &cfg); err != nil {
				return nil, err
			}
			run, err := s.run(ctx, cfg)
			if err != nil {
				return nil, err
			}
			return []float64{run.UnitP999, run.UnitP50}, nil
		},
	}
}
