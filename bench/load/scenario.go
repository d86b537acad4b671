package load

import (
	"slices"
	"time"

	"trellis/bench"
)

// A Scenario is a kind of load.
type Scenario struct {
	// Name is what bench.Config.Scenario says.
	Name string
	// About is a line that says what the scenario does.
	About string
	// Consumers tells that only the producers among the connections begin units, and the others take the jobs.
	Consumers bool

	driver driver
	// single tells that a connection has one unit under way, with up to Depth commands of it in flight.
	single bool
	// shape completes the configuration with the scenario's own defaults.
	shape func(*bench.Config)
}

var scenarios = []*Scenario{
	{
		Name: "put", About: "put jobs; afterwards they are taken out and compared",
		driver: putDriver{},
	},
	{
		Name: "cycle", About: "put, reserve and delete, on every connection",
		driver: cycleDriver{},
	},
	{
		Name: "produce-consume", About: "half of the connections put, the others reserve and delete",
		driver: produceDriver{}, Consumers: true, shape: halfProduce,
	},
	{
		Name: "fan-in", About: "all connections but one put into one tube, one reserves and deletes",
		driver: produceDriver{}, Consumers: true, shape: func(c *bench.Config) {
			c.Producers = or(c.Producers, c.Conns-1)
			halfProduce(c)
		},
	},
	{
		Name: "many-tubes", About: "producers put into one tube after the other, each worker watches some of them",
		driver: produceDriver{rotate: true}, Consumers: true, shape: func(c *bench.Config) {
			c.Tubes = or(c.Tubes, 1000)
			halfProduce(c)
		},
	},
	{
		Name: "watch-many", About: "producers put into one tube after the other, every worker watches all of them",
		driver: produceDriver{rotate: true, watchAll: true}, Consumers: true, shape: func(c *bench.Config) {
			c.Tubes = or(c.Tubes, 100)
			halfProduce(c)
		},
	},
	{
		Name: "delayed", About: "jobs with a delay; how late they come when it is over",
		driver: produceDriver{delayed: true}, Consumers: true, shape: func(c *bench.Config) {
			c.Delay = or(c.Delay, time.Second)
			boundBacklog(c, 10000)
			c.Patience += c.Delay
			halfProduce(c)
		},
	},
	{
		Name: "priorities", About: "batches of jobs with random priorities must come back in order",
		driver: priorityDriver{}, single: true, shape: func(c *bench.Config) { c.Tubes = c.Conns },
	},
	{
		Name: "waiting", About: "many workers wait, few jobs come; the time from put to RESERVED",
		driver: produceDriver{}, Consumers: true, shape: func(c *bench.Config) {
			c.Producers = or(c.Producers, 1)
			boundBacklog(c, c.Producers*c.Depth)
			halfProduce(c)
		},
	},
	{
		Name: "bury-kick", About: "put, reserve, bury, kick, reserve and delete",
		driver: buryDriver{},
	},
	{
		Name: "reserve-timeout", About: "reserves that time out; how late they do",
		driver: timeoutDriver{}, shape: func(c *bench.Config) { c.Patience += c.Timeout },
	},
	{
		Name: "churn", About: "connect, put, reserve, delete and close",
		driver: churnDriver{},
	},
	{
		Name: "connect", About: "connect, ask for the tube in use, and close",
		driver: connectDriver{},
	},
	{
		Name: "idle", About: "connections that do nothing; what they cost",
		driver: cycleDriver{}, shape: func(c *bench.Config) { c.Idle, c.Conns = c.Idle+c.Conns, 0 },
	},
	{
		Name: "large", About: "as cycle, with bodies of 65,000 bytes",
		driver: cycleDriver{}, shape: func(c *bench.Config) {
			if c.Size.IsZero() {
				c.Size = bench.FixedSize(65000)
			}
		},
	},
	{
		Name: "mix", About: "commands at random by the weights of a file",
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

// or returns v, or standard when v is zero.
func or[T int | time.Duration](v, standard T) T {
	if v == 0 {
		return standard
	}
	return v
}

// halfProduce makes half of the connections producers, when nothing else was said.
func halfProduce(c *bench.Config) {
	c.Conns = max(c.Conns, 2)
	c.Producers = or(c.Producers, c.Conns/2)
	boundBacklog(c, 1000)
}

// boundBacklog bounds the backlog of a closed loop, when nothing else was said. Without a bound the producers would leave
// the workers far behind.
func boundBacklog(c *bench.Config, jobs int) {
	if c.Rate == 0 {
		c.Backlog = or(c.Backlog, jobs)
	}
}

// ownTube is driver.setup for a connection that puts into and takes from one tube.
func ownTube(w *worker, c *conn, k int) bool {
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

// noConsumers is embedded by drivers whose connections all begin units.
type noConsumers struct{}

func (noConsumers) join(*worker, *conn, int64) {}
