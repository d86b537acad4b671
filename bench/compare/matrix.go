package compare

import (
	"fmt"
	"time"

	"trellis/bench"
	"trellis/bench/internal/quantity"
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

// StandardMatrix returns the measurements of the README, in which every scenario has its row. For two servers in three
// rounds they take a quarter of an hour at most.
func StandardMatrix() []Measurement {
	seconds := measured{figure{name: "time", unit: quantity.Seconds}, runSeconds}
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
			measured{figure{name: "memory a job", unit: quantity.Bytes}, bytesPerJob}.with(target{valueBelow, 220}, target{valueBelow, 160})),
	}
	for _, l := range otherScenarios() {
		all = append(all, l.measurement())
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

// A scenarioLoad is a load of the standard matrix that is measured by what it costs the server, and by further figures.
type scenarioLoad struct {
	cfg     bench.Config
	more    string // appended to its name
	figures []measured
}

// otherScenarios are the scenarios that the rest of the standard matrix leaves out.
func otherScenarios() []scenarioLoad {
	handover := latency("p50 from put to reserved", bench.HandoverMetric, p50)
	late := latency("p99 of how late", bench.LateMetric, p99)
	of := func(scenario, more string, change func(*bench.Config), figures ...measured) scenarioLoad {
		return scenarioLoad{matrixLoad(scenario, change), more, figures}
	}
	return []scenarioLoad{
		of("put", "", func(c *bench.Config) { c.Keep = true }, rateFigure),
		of("produce-consume", "", nil, rateFigure),
		of("fan-in", "", nil, rateFigure),
		of("many-tubes", ", 1,000 tubes", func(c *bench.Config) { c.Tubes = 1000 }, rateFigure),
		of("watch-many", ", 100 tubes", func(c *bench.Config) { c.Tubes = 100 }, rateFigure),
		of("waiting", "", func(c *bench.Config) { c.Conns = 1000 }, handover),
		of("delayed", ", 10,000 jobs/s with a delay of 1 s",
			func(c *bench.Config) { c.Rate, c.Delay, c.Warmup = 10000, time.Second, 1500*time.Millisecond }, late),
		of("reserve-timeout", ", a timeout of 1 s", func(c *bench.Config) { c.Conns, c.Timeout = 1000, time.Second }, late),
		of("priorities", "", nil, rateFigure),
		of("bury-kick", "", nil, rateFigure),
		of("mix", "", func(c *bench.Config) { c.Mix = matrixMix }, rateFigure),
		of("churn", "", nil, rateFigure),
		of("connect", "", nil, measured{figure{name: "connections", unit: quantity.PerSecond}, unitRate}),
		of("large", ", bodies of 65,000 bytes", func(c *bench.Config) { c.Size = bench.FixedSize(65000) },
			latency("p99 of a unit", bench.UnitMetric, p99).with(noMoreThanFirst, target{}), rateFigure),
	}
}

// measurement is the load on a fresh server, with its cost as the first figure.
func (l scenarioLoad) measurement() Measurement {
	name := l.cfg.Scenario + ", " + plural(l.cfg.Conns, "connection") + l.more
	figures := append([]measured{cpuFigure.with(noMoreThanFirst, target{})}, l.figures...)
	return loadOn(name, "", l.cfg, figures...)
}

// matrixMix is the mix of the standard matrix: mostly puts, reserves and deletes, and a little of what happens when
// workers fail and operators look.
var matrixMix = bench.Mix{Steps: []bench.MixStep{
	{Weight: 30, Command: "put", Priority: bench.Range{Most: 1000}},
	{Weight: 30, Command: "reserve"},
	{Weight: 26, Command: "delete"},
	{Weight: 4, Command: "release", Priority: bench.Range{Most: 1000}},
	{Weight: 3, Command: "touch"},
	{Weight: 2, Command: "bury"},
	{Weight: 2, Command: "kick", Bound: bench.Range{Least: 1, Most: 10}},
	{Weight: 1, Command: "peek-ready"},
	{Weight: 1, Command: "stats-job"},
	{Weight: 1, Command: "stats-tube"},
}}

// plural writes a number with the word for what is counted.
func plural(n int, word string) string {
	if n != 1 {
		word += "s"
	}
	return quantity.Whole(float64(n)) + " " + word
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
	all = append(all, logged("-b {dir}", defaultSyncing, "put", 1000, 1, rateFigure), recoveryOf("-b {dir}", defaultSyncing))
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
	name := fmt.Sprintf("binlog, %s: %s, %s", mode, scenario, plural(conns, "connection"))
	if depth > 1 {
		name += fmt.Sprintf(", %d pipelined", depth)
	}
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
	r := Recovery(fmt.Sprintf("binlog, %s: recovery of %s jobs after a kill", mode, quantity.Whole(float64(cfg.Count))), args, cfg)
	r.figures[1].atLeast, r.figures[2].atLeast = cpu, target{valueBelow, 1.2}
	return r
}
