package load

import (
	"testing"
	"time"

	"trellis/bench"
	"trellis/bench/internal/faulty"
)

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	good := quick(faulty.Start(t, "tcp", faulty.Faults{}).Addr, "cycle")
	same := good
	if _, err := complete(&same); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*bench.Config){
		"no such scenario":       func(c *bench.Config) { c.Scenario = "fly" },
		"no address":             func(c *bench.Config) { c.Addr = bench.Address{} },
		"a negative rate":        func(c *bench.Config) { c.Rate = -1 },
		"a mix without a file":   func(c *bench.Config) { c.Scenario = "mix" },
		"half a second":          func(c *bench.Config) { c.Scenario, c.Timeout = "reserve-timeout", 500e6 },
		"too many in flight":     func(c *bench.Config) { c.Conns, c.Depth = 1<<13, 1<<13 },
		"workers that hold jobs": func(c *bench.Config) { c.Scenario, c.Held = "produce-consume", 1 },
		"a mix that holds jobs": func(c *bench.Config) {
			c.Scenario, c.Held, c.Mix = "mix", 1, bench.Mix{Steps: []bench.MixStep{{Weight: 1, Command: "put"}}}
		},
		"a negative number of tubes":  func(c *bench.Config) { c.FurtherTubes = -1 },
		"a negative count of the run": func(c *bench.Config) { c.Count = -1 },
		"a negative time":             func(c *bench.Config) { c.Warmup = -1 },
		"nobody who reserves":         func(c *bench.Config) { c.Scenario, c.Producers = "produce-consume", 8 },
		"no room beside held jobs":    func(c *bench.Config) { c.Held, c.Backlog = 2, 16 },
		"a backlog that never falls":  func(c *bench.Config) { c.Scenario, c.Backlog = "put", 10 },
		"a backlog in an open loop":   func(c *bench.Config) { c.Rate, c.Backlog = 1, 10 },
		"producers of a cycle":        func(c *bench.Config) { c.Producers = 3 },
		"a delay of a cycle":          func(c *bench.Config) { c.Delay = time.Second },
		"a timeout of a cycle":        func(c *bench.Config) { c.Timeout = time.Second },
		"a mix of a cycle":            func(c *bench.Config) { c.Mix = bench.Mix{Steps: make([]bench.MixStep, 1)} },
		"tubes of priorities":         func(c *bench.Config) { c.Scenario, c.Tubes = "priorities", 2 },
		"a depth of timeouts":         func(c *bench.Config) { c.Scenario, c.Depth = "reserve-timeout", 2 },
		"a depth of churn":            func(c *bench.Config) { c.Scenario, c.Depth = "churn", 2 },
		"a depth of connecting":       func(c *bench.Config) { c.Scenario, c.Depth = "connect", 2 },
		"a count of idleness":         func(c *bench.Config) { c.Scenario = "idle" },
	} {
		cfg := good
		change(&cfg)
		if _, err := complete(&cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
