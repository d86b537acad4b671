package bench

import (
	"slices"
	"time"
)

// A scenario is a kind of load.
type scenario struct {
	name, about string
	driver      driver
	// consumers tells that only Producers of the connections begin units, and the others take the jobs.
	consumers bool
	// single tells that a connection has one unit under way, with up to Depth commands of it in flight.
	single bool
	// shape completes the configuration with the scenario's own defaults.
	shape func(*Config)
}

var scenarios = []*scenario{
	{
		name: "put", about: "put jobs; afterwards they are taken out and compared",
		driver: putDriver{},
	},
	{
		name: "cycle", about: "put, reserve and delete, on every connection",
		driver: cycleDriver{},
	},
	{
		name: "produce-consume", about: "half of the connections put, the others reserve and delete",
		driver: produceDriver{}, consumers: true, shape: halfProduce,
	},
	{
		name: "fan-in", about: "all connections but one put into one tube, one reserves and deletes",
		driver: produceDriver{}, consumers: true, shape: func(c *Config) {
			c.Producers = or(c.Producers, c.Conns-1)
			halfProduce(c)
		},
	},
	{
		name: "many-tubes", about: "producers put into one tube after the other, each worker watches some of them",
		driver: produceDriver{rotate: true}, consumers: true, shape: func(c *Config) {
			c.Tubes = or(c.Tubes, 1000)
			halfProduce(c)
		},
	},
	{
		name: "watch-many", about: "producers put into one tube after the other, every worker watches all of them",
		driver: produceDriver{rotate: true, watchAll: true}, consumers: true, shape: func(c *Config) {
			c.Tubes = or(c.Tubes, 100)
			halfProduce(c)
		},
	},
	{
		name: "delayed", about: "jobs with a delay; how late they come when it is over",
		driver: produceDriver{delayed: true}, consumers: true, shape: func(c *Config) {
			c.Delay = or(c.Delay, time.Second)
			c.boundBacklog(10000)
			c.Patience += c.Delay
			halfProduce(c)
		},
	},
	{
		name: "priorities", about: "batches of jobs with random priorities must come back in order",
		driver: priorityDriver{}, single: true, shape: func(c *Config) { c.Tubes = c.Conns },
	},
	{
		name: "waiting", about: "many workers wait, few jobs come; the time from put to RESERVED",
		driver: produceDriver{}, consumers: true, shape: func(c *Config) {
			c.Producers = or(c.Producers, 1)
			c.boundBacklog(c.Producers * c.Depth)
			halfProduce(c)
		},
	},
	{
		name: "bury-kick", about: "put, reserve, bury, kick, reserve and delete",
		driver: buryDriver{},
	},
	{
		name: "reserve-timeout", about: "reserves that time out; how late they do",
		driver: timeoutDriver{}, shape: func(c *Config) { c.Patience += c.Timeout },
	},
	{
		name: "churn", about: "connect, put, reserve, delete and close",
		driver: churnDriver{},
	},
	{
		name: "idle", about: "connections that do nothing; what they cost",
		driver: cycleDriver{}, shape: func(c *Config) { c.Idle, c.Conns = c.Idle+c.Conns, 0 },
	},
	{
		name: "large", about: "as cycle, with bodies of 65,000 bytes",
		driver: cycleDriver{}, shape: func(c *Config) {
			if c.Size.text == "" {
				c.Size = fixedSize(65000)
			}
		},
	},
	{
		name: "mix", about: "commands at random by the weights of a file",
		driver: mixDriver{},
	},
}

// Scenarios returns the names of all scenarios, each with a line that tells what it does.
func Scenarios() [][2]string {
	var all [][2]string
	for _, s := range scenarios {
		all = append(all, [2]string{s.name, s.about})
	}
	return all
}

func findScenario(name string) *scenario {
	i := slices.IndexFunc(scenarios, func(s *scenario) bool { return s.name == name })
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
func halfProduce(c *Config) {
	c.Conns = max(c.Conns, 2)
	c.Producers = or(c.Producers, c.Conns/2)
	c.boundBacklog(1000)
}

// boundBacklog bounds the backlog of a closed loop, when nothing else was said: its producers would leave the workers far
// behind.
func (c *Config) boundBacklog(jobs int) {
	if c.Rate == 0 {
		c.Backlog = or(c.Backlog, jobs)
	}
}

// ownTube sends the set-up commands of a connection that puts into and takes from one tube.
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

// noConsumers is for drivers all of whose connections begin units.
type noConsumers struct{}

func (noConsumers) join(*worker, *conn, int64) {}
