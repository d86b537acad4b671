package compare

import (
	"fmt"
	"time"

	"trellis/bench"
	"trellis/bench/internal/quantity"
	"trellis/bench/load"
)

// matrixLoad is the load that most rows of a matrix vary: 50 connections, one command in flight on each, bodies of 100
// bytes, on a server that is thrown away afterwards.
func matrixLoad(scenario string, change func(*bench.Config)) bench.Config {
	cfg := bench.Config{
		Scenario: scenario, Conns: 50, Size: bench.FixedSize(100), Duration: 2 * time.Second, Warmup: 500 * time.Millisecond,
		Seed: 1,
	}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

// closedLoop is the measurement whose rate, on the first server, sets the rate of the open loop.
const closedLoop = "cycle, 50 connections"

// noMoreThanFirst is the target of measurements in which the first server is good: to need no more than it does.
var noMoreThanFirst = target{ratioBelow, 1}

// StandardMatrix returns the measurements of bench/RESULTS.md, in which every scenario has its row. For two servers in
// three rounds they take a quarter of an hour at most.
func StandardMatrix() []Measurement {
	seconds := taken("time", quantity.Seconds, func(r *bench.RunResult) float64 { return r.Seconds })
	perJob := taken("memory a job", quantity.Bytes, func(r *bench.RunResult) float64 { return r.BytesPerJob })
	conns := func(n int) func(*bench.Config) { return func(c *bench.Config) { c.Conns = n } }
	pipelined := func(n int) func(*bench.Config) { return func(c *bench.Config) { c.Depth = n } }
	cheaper := cpuFigure.with(noMoreThanFirst, target{})
	all := []Measurement{
		loadOn(closedLoop, "", matrixLoad("cycle", nil),
			cpuFigure.with(target{ratioBelow, 0.87}, target{ratioBelow, 0.75}), rateFigure),
		loadOn("cycle, 1,000 connections", "", matrixLoad("cycle", conns(1000)),
			cpuFigure.with(target{ratioBelow, 0.87}, target{ratioBelow, 0.72}), rateFigure),
		loadOn("cycle, 1 connection", "", matrixLoad("cycle", conns(1)),
			latency("p50 of a cycle", bench.UnitMetric, p50).with(target{ratioBelow, 1.1}, target{ratioBelow, 1.0}), cheaper),
		loadOn("cycle, 50 connections, 4 pipelined", "", matrixLoad("cycle", pipelined(4)), cheaper, rateFigure),
		loadOn("cycle, 50 connections, 32 pipelined", "", matrixLoad("cycle", pipelined(32)),
			rateFigure.with(target{ratioAbove, 12}, target{ratioAbove, 20}), cheaper),
		twoProcessors(matrixLoad("cycle", pipelined(32))),
		loadOn("cycle, 50 connections, 10,000 further tubes with a delayed job each", "",
			matrixLoad("cycle", func(c *bench.Config) { c.FurtherTubes, c.Keep = 10000, true }),
			rateFigure.with(target{ratioAbove, 13}, target{ratioAbove, 18})),
		withAndWithout("cycle, 50 connections, 10,000 workers wait", matrixLoad("cycle", nil),
			matrixLoad("cycle", func(c *bench.Config) { c.Waiting = 10000 }), cpuFigure, target{valueBelow, 1.03}),
		withAndWithout("cycle, 50 connections, 10,000 are idle", matrixLoad("cycle", nil),
			matrixLoad("cycle", func(c *bench.Config) { c.Idle = 10000 }), cpuFigure, target{valueBelow, 1.03}),
		withAndWithout("cycle, 1 connection that holds 50,000 reservations", matrixLoad("cycle", conns(1)),
			matrixLoad("cycle", func(c *bench.Config) { c.Conns, c.Held = 1, 50000 }),
			latency("p50 of a delete", "delete", p50), target{valueBelow, 1.1}),
		loadOn("put of 1,000,000 jobs, 50 connections, 32 pipelined", "",
			matrixLoad("put", func(c *bench.Config) { c.Depth, c.Count, c.Warmup, c.Keep = 32, 1000000, 0, true }),
			seconds.with(target{ratioBelow, 1.0 / 10}, target{ratioBelow, 1.0 / 20}),
			perJob.with(target{valueBelow, 220}, target{valueBelow, 160})),
	}
	for _, sc := range load.Scenarios() {
		if sc.Row != nil {
			all = append(all, scenarioRow(sc))
		}
	}
	all = append(all,
		openLoop(matrixLoad("cycle", func(c *bench.Config) { c.Duration = 8 * time.Second })),
		loadOn("10,000 idle connections", "",
			matrixLoad("idle", func(c *bench.Config) { c.Conns, c.Duration, c.Warmup = 10000, 100*time.Millisecond, 0 }),
			memoryFigure.with(target{valueBelow, 0.9 * 1024}, target{valueBelow, 0.6 * 1024})),
	)
	all = append(all, synced()...)
	all = append(all, syncedByDefault()...)
	all = append(all, recoveryOf("-b {dir}", defaultSyncing))
	return append(all, secureRows()...)
}

// scenarioRow is a row that the scenario declares: what it costs the server, and the figure that the scenario is about.
func scenarioRow(sc *load.Scenario) Measurement {
	cfg := matrixLoad(sc.Name, sc.Row.Set)
	name := sc.Name + ", " + plural(cfg.Conns, "connection") + sc.Row.Detail
	figures := []measured{cpuFigure.with(noMoreThanFirst, target{})}
	switch sc.Metric {
	case bench.HandoverMetric:
		figures = append(figures, latency("p50 from put to reserved", bench.HandoverMetric, p50))
	case bench.LateMetric:
		figures = append(figures, latency("p99 of how late", bench.LateMetric, p99))
	case bench.UnitMetric:
		figures = append(figures, latency("p99 of a unit", bench.UnitMetric, p99).with(noMoreThanFirst, target{}), rateFigure)
	default:
		rate := rateFigure
		if sc.Units != "" {
			rate = unitRate(sc.Units)
		}
		figures = append(figures, rate)
	}
	return loadOn(name, "", cfg, figures...)
}

// unitRate is the rate of units, which the figure calls by a name.
func unitRate(name string) measured {
	return taken(name, quantity.PerSecond, func(r *bench.RunResult) float64 { return r.UnitRate })
}

// plural writes a number with the word for what is counted.
func plural(n int, word string) string {
	if n != 1 {
		word += "s"
	}
	return quantity.Whole(float64(n)) + " " + word
}

// connections writes how many connections a load has, and how many commands each has in flight.
func connections(n, depth int) string {
	text := plural(n, "connection")
	if depth > 1 {
		text += fmt.Sprintf(", %d pipelined", depth)
	}
	return text
}

// DurabilityMatrix returns the measurements of the binlog: in each mode of syncing, what puts and cycles cost, and what
// it takes to come back after a crash.
func DurabilityMatrix() []Measurement {
	all := []Measurement{
		logged("", "none", "put", 50, 1, rateFigure),
		logged("", "none", "put", 1000, 1, rateFigure),
		logged("", "none", "cycle", 50, 32, rateFigure),
		logged("-b {dir} -F", "never synced", "put", 50, 1, rateFigure),
		logged("-b {dir} -F", "never synced", "put", 1000, 1, rateFigure),
		logged("-b {dir} -F", "never synced", "cycle", 50, 32, rateFigure),
		recoveryOf("-b {dir} -F", "never synced"),
	}
	all = append(all, syncedByDefault()...)
	all = append(all, logged("-b {dir}", defaultSyncing, "put", 1000, 1, rateFigure),
		recoveryOf("-b {dir}", defaultSyncing))
	all = append(all, synced()...)
	return append(all, recoveryOf("-b {dir} -f 0", alwaysSynced))
}

// Modes of syncing, as names of rows say them: how much of what was acknowledged a power cut may take.
const (
	defaultSyncing = "default syncing"
	alwaysSynced   = "synced before every reply"
)

// synced are measurements of servers that acknowledge a change when it is on the disk.
func synced() []Measurement {
	row := func(scenario string, conns, depth int, m measured) Measurement {
		return logged("-b {dir} -f 0", alwaysSynced, scenario, conns, depth, m)
	}
	return []Measurement{
		row("put", 1, 1, latency("p50 of a put", "put", p50).with(target{ratioBelow, 1.1}, target{})),
		row("put", 50, 1, rateFigure.with(target{ratioAbove, 5}, target{})),
		row("put", 1000, 1, rateFigure.with(target{ratioAbove, 12}, target{})),
		row("cycle", 50, 32, rateFigure.with(target{ratioAbove, 50}, target{})),
	}
}

// syncedByDefault are measurements of servers that acknowledge a change when the kernel has it.
func syncedByDefault() []Measurement {
	row := func(scenario string, depth int, m measured) Measurement {
		return logged("-b {dir}", defaultSyncing, scenario, 50, depth, m)
	}
	return []Measurement{
		row("put", 1, rateFigure.with(target{ratioAbove, 1}, target{})),
		row("put", 32, rateFigure),
		row("cycle", 32, rateFigure.with(target{ratioAbove, 8}, target{})),
	}
}

// logged is a load on a server that is started with args, which make it keep a log.
func logged(args, mode, scenario string, conns, depth int, m measured) Measurement {
	name := fmt.Sprintf("binlog, %s: %s, %s", mode, scenario, connections(conns, depth))
	cfg := matrixLoad(scenario, func(c *bench.Config) { c.Conns, c.Depth, c.Keep = conns, depth, scenario == "put" })
	return loadOn(name, args, cfg, m)
}

// recoveryOf kills a server with a million jobs and starts it again.
func recoveryOf(args, mode string) Measurement {
	cfg := matrixLoad("put", func(c *bench.Config) { c.Depth, c.Count, c.Warmup = 32, 1000000, 0 })
	cpu := target{valueBelow, 0.5}
	if args == "-b {dir} -f 0" {
		cfg.Count, cpu = 100000, target{} // the puts would take minutes
	}
	r := Recovery(fmt.Sprintf("binlog, %s: recovery of %s jobs after a kill", mode, quantity.Whole(float64(cfg.Count))),
		args, cfg)
	r.figures[1].atLeast, r.figures[2].atLeast = cpu, target{valueBelow, 1.2}
	return r
}
