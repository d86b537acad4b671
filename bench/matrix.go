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
func serverBusy(r *RunResult) float64    { return r.ServerBusy }
func runSeconds(r *RunResult) float64    { return r.Seconds }
func bytesPerConn(r *RunResult) float64  { return r.BytesPerConn }
func bytesPerJob(r *RunResult) float64   { return r.BytesPerJob }

// A measured is a figure with where it comes from.
type measured struct {
	figure
	value value
}

var (
	rateFigure   = measured{figure{name: "commands", unit: perSecond}, commandRate}
	cpuFigure    = measured{figure{name: "server CPU a command", unit: nanoseconds}, cpuPerCommand}
	memoryFigure = measured{figure{name: "memory a connection", unit: kilobytes}, bytesPerConn}
)

func p50(m *MetricResult) int64  { return m.P50 }
func p99(m *MetricResult) int64  { return m.P99 }
func p999(m *MetricResult) int64 { return m.P999 }

// latency is a figure of the durations of a metric.
func latency(name, metric string, of func(*MetricResult) int64) measured {
	return measured{figure{name: name, unit: nanoseconds}, func(r *RunResult) float64 {
		if m := r.Metric(metric); m != nil {
			return float64(of(m))
		}
		return 0
	}}
}

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

// timesRow is a row of two loads on one server; its figure is that of one load as a multiple of the other's. The load
// without is put on before and after the one with it, so that it is no colder, and what drifts cancels; the one with it
// lasts as long as both.
func timesRow(name string, without, with Config, m measured, goal target) Row {
	with.Duration = 2 * without.Duration
	return Row{
		name:    name,
		figures: []figure{{name: m.name + ", with / without", unit: timesItself, atLeast: goal, aim: goal}},
		measure: func(ctx context.Context, s *session) ([]float64, error) {
			if err := s.prepare(ctx, "", &with); err != nil {
				return nil, err
			}
			var values [3]float64
			for i, cfg := range []Config{without, with, without} {
				r, err := s.run(ctx, cfg)
				if err != nil {
					return nil, err
				}
				values[i] = m.value(r)
			}
			if values[0] == 0 || values[2] == 0 {
				return []float64{0}, nil
			}
			return []float64{2 * values[1] / (values[0] + values[2])}, nil
		},
	}
}

// LoadRow is a row of one load, with the figures that say what its scenario is about.
func LoadRow(cfg Config) Row {
	if cfg.Scenario == "idle" {
		return loadRow(cfg.Scenario, "", cfg, memoryFigure, measured{figure{name: "server CPU", unit: cores, zero: true}, serverBusy})
	}
	figures := []measured{
		rateFigure, cpuFigure,
		latency("p50 of a unit", UnitMetric, p50), latency("p99 of a unit", UnitMetric, p99), latency("p99.9 of a unit", UnitMetric, p999),
	}
	switch sc := findScenario(cfg.Scenario); {
	case cfg.Scenario == "delayed" || cfg.Scenario == "reserve-timeout":
		figures = append(figures, latency("p50 of how late", LateMetric, p50), latency("p99 of how late", LateMetric, p99))
	case sc != nil && sc.consumers:
		figures = append(figures, latency("p50 from put to reserved", HandoverMetric, p50), latency("p99 from put to reserved", HandoverMetric, p99))
	}
	if cfg.Conns+cfg.Idle+cfg.Waiting >= enoughConns && cfg.Held == 0 {
		figures = append(figures, memoryFigure)
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
			latency("p50 of a cycle", UnitMetric, p50).with(target{ratioBelow, 1.1}, target{ratioBelow, 1.0})),
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
			latency("p50 of a delete", "delete", p50), target{valueBelow, 1.1}),
		loadRow("put of 1,000,000 jobs, 50 connections, 32 pipelined", "",
			matrixLoad("put", func(c *Config) { c.Depth, c.Count, c.Warmup, c.Keep = 32, 1000000, 0, true }),
			seconds.with(target{ratioBelow, 1.0 / 10}, target{ratioBelow, 1.0 / 20}),
			measured{figure{name: "memory a job", unit: bytesEach}, bytesPerJob}.with(target{valueBelow, 220}, target{valueBelow, 160})),
		openLoopRow(matrixLoad("cycle", func(c *Config) { c.Duration = 8 * time.Second })),
		loadRow("10,000 idle connections", "",
			matrixLoad("idle", func(c *Config) { c.Conns, c.Duration, c.Warmup = 10000, 100*time.Millisecond, 0 }),
			memoryFigure.with(target{valueBelow, 0.9 * 1024}, target{valueBelow, 0.6 * 1024})),
	}
	rows = append(rows, syncedRows()...)
	rows = append(rows, defaultRows()...)
	return append(rows, recoveryRow("-b {dir}", defaultSyncing))
}

// DurabilityMatrix returns the measurements of the binlog: in each mode of syncing, what puts and cycles cost, and what
// it takes to come back after a crash.
func DurabilityMatrix() []Row {
	rows := []Row{
		logRow("", "none", "put", 50, 1, rateFigure),
		logRow("", "none", "put", 1000, 1, rateFigure),
		logRow("", "none", "cycle", 50, 32, rateFigure),
		logRow("-b {dir} -F", "never synced", "put", 50, 1, rateFigure),
		logRow("-b {dir} -F", "never synced", "put", 1000, 1, rateFigure),
		logRow("-b {dir} -F", "never synced", "cycle", 50, 32, rateFigure),
		recoveryRow("-b {dir} -F", "never synced"),
	}
	rows = append(rows, defaultRows()...)
	rows = append(rows, logRow("-b {dir}", defaultSyncing, "put", 1000, 1, rateFigure), recoveryRow("-b {dir}", defaultSyncing))
	rows = append(rows, syncedRows()...)
	return append(rows, recoveryRow("-b {dir} -f 0", alwaysSynced))
}

// How much of what was acknowledged a power cut may take.
const (
	defaultSyncing = "default syncing"
	alwaysSynced   = "synced before every reply"
)

// syncedRows are the rows of servers that acknowledge what is on the disk.
func syncedRows() []Row {
	row := func(scenario string, conns, depth int, m measured) Row {
		return logRow("-b {dir} -f 0", alwaysSynced, scenario, conns, depth, m)
	}
	return []Row{
		row("put", 1, 1, latency("p50 of a put", "put", p50).with(target{ratioBelow, 1.1}, target{})),
		row("put", 50, 1, rateFigure.with(target{ratioAbove, 5}, target{})),
		row("put", 1000, 1, rateFigure.with(target{ratioAbove, 12}, target{})),
		row("cycle", 50, 32, rateFigure.with(target{ratioAbove, 50}, target{})),
	}
}

// defaultRows are the rows of servers that acknowledge what the kernel has.
func defaultRows() []Row {
	row := func(scenario string, depth int, m measured) Row {
		return logRow("-b {dir}", defaultSyncing, scenario, 50, depth, m)
	}
	return []Row{
		row("put", 1, rateFigure.with(target{ratioAbove, 1}, target{})),
		row("put", 32, rateFigure),
		row("cycle", 32, rateFigure.with(target{ratioAbove, 8}, target{})),
	}
}

// logRow is a row of a server that was started with args, which say how it logs.
func logRow(args, mode, scenario string, conns, depth int, m measured) Row {
	name := fmt.Sprintf("binlog, %s: %s, %s connections", mode, scenario, thousands(float64(conns)))
	if conns == 1 {
		name = strings.TrimSuffix(name, "s")
	}
	if depth > 1 {
		name += fmt.Sprintf(", %d pipelined", depth)
	}
	cfg := matrixLoad(scenario, func(c *Config) { c.Conns, c.Depth, c.Keep = conns, depth, scenario == "put" })
	return loadRow(name, args, cfg, m)
}

// recoveryRow kills a server with a million jobs and starts it again.
func recoveryRow(args, mode string) Row {
	cfg := matrixLoad("put", func(c *Config) { c.Depth, c.Count, c.Warmup = 32, 1000000, 0 })
	cpu := target{valueBelow, 0.5}
	if args == "-b {dir} -f 0" {
		cfg.Count, cpu = 100000, target{} // the puts would take minutes
	}
	r := RecoveryRow(fmt.Sprintf("binlog, %s: recovery of %s jobs after a kill", mode, thousands(float64(cfg.Count))), args, cfg)
	r.figures[1].atLeast, r.figures[2].atLeast = cpu, target{valueBelow, 1.2}
	return r
}

// RecoveryRow is a row that loads a server with the jobs of cfg, which must be puts that end by a count, kills it and
// starts it again on the same directory. args, with {dir} in them, make the server keep a log.
func RecoveryRow(name, args string, cfg Config) Row {
	return Row{
		name: name,
		figures: []figure{
			{name: "time until stats are answered", unit: inSeconds},
			{name: "server CPU until then", unit: inSeconds},
			{name: "peak memory until then, as a multiple of that before", unit: timesItself},
			{name: "disk", unit: megabytes},
		},
		measure: func(ctx context.Context, s *session) ([]float64, error) {
			r, err := s.recovery(ctx, args, cfg)
			if r == nil {
				return nil, err
			}
			return []float64{r.Took.Seconds(), r.CPU.Seconds(), r.Peak, float64(r.Disk)}, err
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
	most := latency("p99.9 of a unit", UnitMetric, p999).with(target{ratioBelow, 1}, target{ratioBelow, 0.5})
	middle := latency("p50 of a unit", UnitMetric, p50)
	return Row{
		name:    name,
		figures: []figure{most.figure, middle.figure},
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
			return []float64{most.value(run), middle.value(run)}, nil
		},
	}
}
