package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"trellis/bench"
	"trellis/bench/internal/host"
	"trellis/bench/internal/quantity"
	"trellis/bench/load"
)

// A Measurement is a load, or a sequence of loads, with the figures that are taken from it. Make one with Load or
// Recovery, or many with StandardMatrix, DurabilityMatrix, ClusterMatrix or SpillMatrix.
type Measurement struct {
	name    string
	figures []figure
	// measure starts the servers that it needs, and returns one value for each figure, zero where it cannot be told. It
	// returns none when the server broke on the way.
	measure func(ctx context.Context, s *session) ([]float64, error)
	// needCPUs is how many processors the comparison must have; with fewer the measurement is skipped.
	needCPUs int
}

// Name is what the rows of the measurement are called.
func (m *Measurement) Name() string { return m.name }

// A value takes a figure out of a run.
type value func(*bench.RunResult) float64

// A measured is a figure, and how it is taken out of a run.
type measured struct {
	figure
	value value
}

var (
	rateFigure = taken("commands", quantity.PerSecond, func(r *bench.RunResult) float64 { return r.CommandRate })
	cpuFigure  = taken("server CPU a command", quantity.Nanoseconds,
		func(r *bench.RunResult) float64 { return r.CPUPerCommand })
	memoryFigure = taken("memory a connection", quantity.Kilobytes,
		func(r *bench.RunResult) float64 { return r.BytesPerConn })
)

// taken is a figure that is taken out of a run.
func taken(name string, unit quantity.Unit, of value) measured {
	return measured{figure{name: name, unit: unit}, of}
}

func p50(m *bench.MetricResult) int64  { return m.P50 }
func p99(m *bench.MetricResult) int64  { return m.P99 }
func p999(m *bench.MetricResult) int64 { return m.P999 }

func latency(name, metric string, of func(*bench.MetricResult) int64) measured {
	return taken(name, quantity.Nanoseconds, func(r *bench.RunResult) float64 {
		if m := r.Metric(metric); m != nil {
			return float64(of(m))
		}
		return 0
	})
}

func (m measured) with(atLeast, aim target) measured {
	m.atLeast, m.aim = atLeast, aim
	return m
}

// A runner puts one load on a server that it has started.
type runner func(context.Context, *session) (*bench.RunResult, error)

func oneRun(name string, run runner, figures ...measured) Measurement {
	measure := func(ctx context.Context, s *session) ([]float64, error) {
		r, err := run(ctx, s)
		if err != nil {
			return nil, err
		}
		return valuesOf(figures, r), nil
	}
	return Measurement{name: name, figures: figuresOf(figures), measure: measure}
}

func figuresOf(all []measured) (figures []figure) {
	for _, m := range all {
		figures = append(figures, m.figure)
	}
	return figures
}

func valuesOf(all []measured, r *bench.RunResult) (values []float64) {
	for _, m := range all {
		values = append(values, m.value(r))
	}
	return values
}

// loadOn is one load on a fresh server that is started with the further arguments args.
func loadOn(name, args string, cfg bench.Config, figures ...measured) Measurement {
	return oneRun(name, func(ctx context.Context, s *session) (*bench.RunResult, error) {
		if err := s.prepare(ctx, args, &cfg); err != nil {
			return nil, err
		}
		return s.run(ctx, cfg)
	}, figures...)
}

// prepare starts the server with room for the connections of cfg.
func (s *session) prepare(ctx context.Context, args string, cfg *bench.Config) error {
	if err := host.RaiseFileLimit(cfg.Conns + cfg.Idle + cfg.Waiting + 100); err != nil {
		return err
	}
	return s.start(ctx, args, s.ServerCPUs)
}

// withAndWithout is two loads on one server. Its figure is that of the load "with" as a multiple of that of the load
// "without". The load "with" lasts as long as the two runs of the other together.
func withAndWithout(name string, without, with bench.Config, m measured, goal target) Measurement {
	with.Duration = 2 * without.Duration
	return Measurement{
		name:    name,
		figures: []figure{{name: m.name + ", with / without", unit: quantity.Multiple, atLeast: goal, aim: goal}},
		measure: func(ctx context.Context, s *session) ([]float64, error) {
			if err := s.prepare(ctx, "", &with); err != nil {
				return nil, err
			}
			runs, err := s.between(ctx, without, func() (*bench.RunResult, error) { return s.run(ctx, with) })
			if err != nil {
				return nil, err
			}
			return []float64{runs.times(m.value)}, nil
		},
	}
}

// between makes a run between two runs of the load "without", so that the server is as warm for
// both and a drift cancels out.
func (s *session) between(
	ctx context.Context, without bench.Config, run func() (*bench.RunResult, error),
) (runs enclosed, err error) {
	around := func() (*bench.RunResult, error) { return s.run(ctx, without) }
	for i, run := range []func() (*bench.RunResult, error){around, run, around} {
		if runs[i], err = run(); err != nil {
			return runs, err
		}
	}
	return runs, nil
}

// enclosed are a run and those before and behind it.
type enclosed [3]*bench.RunResult

// times returns the value of the run in the middle as a multiple of the mean of the other
// two, 0 when that is not known.
func (runs enclosed) times(of func(*bench.RunResult) float64) float64 {
	before, r, after := of(runs[0]), of(runs[1]), of(runs[2])
	if before <= 0 || after <= 0 {
		return 0
	}
	return 2 * r / (before + after)
}

// perCommand is how much of a resource a command of one of the runs has used. used is how much of it was used when
// recording of each run began, and when it ended. It returns 0 if used lacks some, or the run has no commands.
func (runs enclosed) perCommand(r *bench.RunResult, used []int64) float64 {
	if len(used) != 2*len(runs) || r.Commands == 0 {
		return 0
	}
	i := 2 * slices.Index(runs[:], r)
	return float64(used[i+1]-used[i]) / r.Commands
}

// Load is one load on a freshly started server, with the figures that say what its scenario is about. cfg.Addr and Runs
// are the comparison's, and so are CPUs unless they are given.
func Load(cfg bench.Config) Measurement {
	sc := load.FindScenario(cfg.Scenario)
	if sc != nil && sc.Uses&load.Count == 0 { // it has no units
		busy := taken("server CPU", quantity.Cores, func(r *bench.RunResult) float64 { return r.ServerBusy })
		busy.zero = true
		return loadOn(cfg.Scenario, "", cfg, memoryFigure, busy)
	}
	figures := []measured{
		rateFigure, cpuFigure,
		latency("p50 of a unit", bench.UnitMetric, p50), latency("p99 of a unit", bench.UnitMetric, p99),
		latency("p99.9 of a unit", bench.UnitMetric, p999),
	}
	switch {
	case sc == nil: // the load says so
	case sc.Metric == bench.LateMetric:
		figures = append(figures, latency("p50 of how late", bench.LateMetric, p50),
			latency("p99 of how late", bench.LateMetric, p99))
	case sc.Uses&load.Producers != 0:
		figures = append(figures, latency("p50 from put to reserved", bench.HandoverMetric, p50),
			latency("p99 from put to reserved", bench.HandoverMetric, p99))
	}
	if cfg.Conns+cfg.Idle+cfg.Waiting >= bench.MemoryConns && cfg.Held == 0 {
		figures = append(figures, memoryFigure)
	}
	return loadOn(cfg.Scenario, "", cfg, figures...)
}

// Recovery loads a server with the jobs of cfg, which must be puts that end by a count, kills the server, and starts
// it again on the same directory. args are further arguments of the server; they or its command must have {dir} in
// them and make the server keep a log there.
func Recovery(name, args string, cfg bench.Config) Measurement {
	return Measurement{
		name: name,
		figures: []figure{
			{name: "time until stats are answered", unit: quantity.Seconds},
			{name: "server CPU until then", unit: quantity.Seconds},
			{name: "peak memory until then, as a multiple of that before", unit: quantity.Multiple},
			{name: "disk", unit: quantity.Megabytes},
		},
		measure: func(ctx context.Context, s *session) ([]float64, error) {
			r, err := s.recovery(ctx, args, cfg)
			if r == nil {
				return nil, err
			}
			return []float64{r.took.Seconds(), r.cpu.Seconds(), r.peak, float64(r.disk)}, err
		},
	}
}

func twoProcessors(cfg bench.Config) Measurement {
	goal := target{valueAbove, 1.5}
	return Measurement{
		name:     "cycle, 50 connections, 32 pipelined, two processors for the server",
		figures:  []figure{{name: "commands, with two / with one", unit: quantity.Multiple, atLeast: goal, aim: goal}},
		needCPUs: 3,
		measure: func(ctx context.Context, s *session) ([]float64, error) {
			var rates [2]float64
			for i := range rates {
				if err := s.start(ctx, "", s.allCPUs()[:i+1]); err != nil {
					return nil, err
				}
				cfg := cfg
				cfg.CPUs = s.allCPUs()[2:]
				run, err := s.run(ctx, cfg)
				if err != nil {
					return nil, err
				}
				rates[i] = run.CommandRate
			}
			if rates[0] == 0 {
				return []float64{0}, nil
			}
			return []float64{rates[1] / rates[0]}, nil
		},
	}
}

// errNoRate is returned for an open loop whose rate is not known.
var errNoRate = errors.New("there is no rate for an open loop")

// openLoop is half of the load that the first server can bear, at a fixed rate.
func openLoop(cfg bench.Config) Measurement {
	const name = "cycle, 50 connections, open loop at half of the first server's limit"
	most := latency("p99.9 of a unit", bench.UnitMetric, p999).with(target{ratioBelow, 1}, target{ratioBelow, 0.5})
	middle := latency("p50 of a unit", bench.UnitMetric, p50)
	return oneRun(name, func(ctx context.Context, s *session) (*bench.RunResult, error) {
		limit := s.table.find(closedLoop, rateFigure.name)
		switch {
		case limit == 0 && s.table.has(closedLoop):
			return nil, fmt.Errorf("%w: the row %q tells no rate of the first server", errNoRate, closedLoop)
		case limit == 0:
			return nil, fmt.Errorf("the row %q must be measured too, and before", closedLoop)
		}
		cfg := cfg
		cfg.Rate = limit / 3 / 2 // a unit is three commands
		if err := s.prepare(ctx, "", &cfg); err != nil {
			return nil, err
		}
		return s.run(ctx, cfg)
	}, most, middle)
}
