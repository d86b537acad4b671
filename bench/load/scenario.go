package load

import (
	"cmp"
	"slices"
	"time"

	"trellis/bench"
)

// Options are a set of settings of bench.Config that only some scenarios have a use for.
type Options uint16

// The settings, by the names of their fields in bench.Config.
const (
	Producers Options = 1 << iota
	Delay
	Timeout
	Mix
	Tubes
	Depth
	Count
	Rate
	Held
	Backlog
)

// Sets of settings that several scenarios use.
const (
	unitOptions    = Tubes | Depth | Count | Rate
	cycleOptions   = unitOptions | Held | Backlog
	produceOptions = unitOptions | Producers | Backlog
)

// A Scenario is a kind of load.
type Scenario struct {
	// Name is what bench.Config.Scenario says.
	Name string
	// About is a line that says what the scenario does.
	About string
	// Uses are the settings that it has a use for. With Producers, only the producers among the connections begin units,
	// and the others take the jobs.
	Uses Options
	// Metric is the metric that the scenario is about, empty for the rate of its commands.
	Metric string
	// Units is what its units are called where their rate says more than that of the commands.
	Units string
	// Row is its row in the standard comparison. It is nil where the comparison has rows of its own for the scenario.
	Row *Row

	driver driver
	// single tells that a connection has one unit under way, with up to Depth commands of it in flight.
	single bool
	// reconnects tells that each unit has a connection of its own.
	reconnects bool
	// shape completes the configuration with the scenario's own defaults.
	shape func(*bench.Config)
}

// A Row is how the standard comparison measures a scenario.
type Row struct {
	Detail string              // ends its name
	Set    func(*bench.Config) // changes the load of all rows; nil for not at all
}

// scenarios is the one list of scenarios: help texts, checks, tests and the standard comparison follow from it.
var scenarios = []*Scenario{
	{
		Name: "put", About: "put jobs; afterwards they are taken out and compared",
		Uses: unitOptions | Held, Row: &Row{Set: func(c *bench.Config) { c.Keep = true }},
		driver: putDriver{},
	},
	{
		Name: "cycle", About: "put, reserve and delete, on every connection",
		Uses: cycleOptions, driver: cycleDriver{},
	},
	{
		Name: "produce-consume", About: "half of the connections put, the others reserve and delete",
		Uses: produceOptions, Row: &Row{},
		driver: produceDriver{}, shape: halfProduce,
	},
	{
		Name: "fan-in", About: "all connections but one put into one tube, one reserves and deletes",
		Uses: produceOptions, Row: &Row{},
		driver: produceDriver{}, shape: func(c *bench.Config) {
			c.Producers = cmp.Or(c.Producers, c.Conns-1)
			halfProduce(c)
		},
	},
	{
		Name: "many-tubes", About: "producers put into one tube after the other, each worker watches some of them",
		Uses: produceOptions, Row: &Row{Detail: ", 1,000 tubes"},
		driver: produceDriver{rotate: true}, shape: func(c *bench.Config) {
			c.Tubes = cmp.Or(c.Tubes, 1000)
			halfProduce(c)
		},
	},
	{
		Name: "watch-many", About: "producers put into one tube after the other, every worker watches all of them",
		Uses: produceOptions, Row: &Row{Detail: ", 100 tubes"},
		driver: produceDriver{rotate: true, watchAll: true}, shape: func(c *bench.Config) {
			c.Tubes = cmp.Or(c.Tubes, 100)
			halfProduce(c)
		},
	},
	{
		Name: "delayed", About: "jobs with a delay; how late they come when it is over",
		Uses: produceOptions | Delay, Metric: bench.LateMetric,
		Row: &Row{", 10,000 jobs/s with a delay of 1 s", func(c *bench.Config) {
			c.Rate, c.Delay, c.Warmup = 10000, time.Second, 1500*time.Millisecond
		}},
		driver: produceDriver{delayed: true}, shape: func(c *bench.Config) {
			c.Delay = cmp.Or(c.Delay, time.Second)
			boundBacklog(c, 10000)
			c.ReplyTimeout += c.Delay
			halfProduce(c)
		},
	},
	{
		Name: "priorities", About: "batches of jobs with random priorities must come back in order",
		Uses: cycleOptions &^ Tubes, Row: &Row{},
		driver: priorityDriver{}, single: true, shape: func(c *bench.Config) { c.Tubes = c.Conns },
	},
	{
		Name: "waiting", About: "many workers wait, few jobs come; the time from put to RESERVED",
		Uses: produceOptions, Metric: bench.HandoverMetric, Row: &Row{Set: func(c *bench.Config) { c.Conns = 1000 }},
		driver: produceDriver{}, shape: func(c *bench.Config) {
			c.Producers = cmp.Or(c.Producers, 1)
			boundBacklog(c, c.Producers*c.Depth)
			halfProduce(c)
		},
	},
	{
		Name: "bury-kick", About: "put, reserve, bury, kick, reserve and delete",
		Uses: cycleOptions, Row: &Row{},
		driver: buryDriver{},
	},
	{
		Name: "reserve-timeout", About: "reserves that time out; how late they do",
		Uses: Timeout | Tubes | Count | Rate | Held, Metric: bench.LateMetric,
		Row:    &Row{", a timeout of 1 s", func(c *bench.Config) { c.Conns, c.Timeout = 1000, time.Second }},
		driver: timeoutDriver{}, shape: func(c *bench.Config) { c.ReplyTimeout += c.Timeout },
	},
	{
		Name: "churn", About: "connect, put, reserve, delete and close",
		Uses: Tubes | Count | Rate | Backlog, Row: &Row{},
		driver: churnDriver{}, reconnects: true,
	},
	{
		Name: "connect", About: "connect, ask for the tube in use, and close",
		Uses: Count | Rate, Units: "connections", Row: &Row{},
		driver: connectDriver{}, reconnects: true,
	},
	{
		Name: "idle", About: "connections that do nothing; what they cost",
		driver: cycleDriver{}, shape: func(c *bench.Config) { c.Idle, c.Conns = c.Idle+c.Conns, 0 },
	},
	{
		Name: "large", About: "as cycle, with bodies of 65,000 bytes",
		Uses: cycleOptions, Metric: bench.UnitMetric,
		Row:    &Row{", bodies of 65,000 bytes", func(c *bench.Config) { c.Size = bench.FixedSize(65000) }},
		driver: cycleDriver{}, shape: func(c *bench.Config) {
			if c.Size.IsZero() {
				c.Size = bench.FixedSize(65000)
			}
		},
	},
	{
		Name: "mix", About: "commands at random by the weights of a file",
		Uses: unitOptions | Mix, Row: &Row{Set: func(c *bench.Config) { c.Mix = standardMix }},
		driver: mixDriver{},
	},
}

// Scenarios returns all scenarios, in the order in which help texts list them. The caller must not change them.
func Scenarios() []*Scenario { return scenarios }

// FindScenario returns the scenario of that name, nil when there is none.
func FindScenario(name string) *Scenario {
	i := slices.IndexFunc(scenarios, func(s *Scenario) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return scenarios[i]
}

// UsedBy returns the names of the scenarios that have a use for a setting.
func UsedBy(option Options) (names []string) {
	for _, s := range scenarios {
		if s.Uses&option != 0 {
			names = append(names, s.Name)
		}
	}
	return names
}

// halfProduce makes half of the connections producers, when nothing else was said.
func halfProduce(c *bench.Config) {
	c.Conns = max(c.Conns, 2)
	c.Producers = cmp.Or(c.Producers, c.Conns/2)
	boundBacklog(c, 1000)
}

// boundBacklog bounds the backlog of a closed loop, when nothing else was said. Without a bound the producers would
// leave the workers far behind.
func boundBacklog(c *bench.Config, jobs int) {
	if c.Rate == 0 {
		c.Backlog = cmp.Or(c.Backlog, jobs)
	}
}

// ownTube is embedded by drivers whose connections all begin units, and put into and take from one tube each.
type ownTube struct{}

func (ownTube) setup(w *worker, c *conn, k int) bool {
	tube := w.tube(int(c.number))
	switch k {
	case 0:
		w.sendTube(c, metricUse, "use ", tube)
	case 1:
		w.sendTube(c, metricWatch, "watch ", tube)
	case 2:
		w.sendTube(c, metricWatch, "ignore ", "default")
	}
	return k < 3
}

func (ownTube) join(*worker, *conn, int64) {}
