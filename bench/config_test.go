package bench

import (
	"testing"
	"time"
)

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	good := quick(newFakeServer(t, "tcp", fakeFaults{}).addr, "cycle")
	same := good
	if err := same.complete(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"no such scenario":            func(c *Config) { c.Scenario = "fly" },
		"no address":                  func(c *Config) { c.Addr = Address{} },
		"a negative rate":             func(c *Config) { c.Rate = -1 },
		"a mix without a file":        func(c *Config) { c.Scenario = "mix" },
		"half a second":               func(c *Config) { c.Scenario, c.Timeout = "reserve-timeout", 500e6 },
		"too many in flight":          func(c *Config) { c.Conns, c.Depth = 1<<13, 1<<13 },
		"workers that hold jobs":      func(c *Config) { c.Scenario, c.Held = "produce-consume", 1 },
		"a negative number of tubes":  func(c *Config) { c.FurtherTubes = -1 },
		"a negative count of the run": func(c *Config) { c.Count = -1 },
		"a negative time":             func(c *Config) { c.Warmup = -1 },
		"nobody who reserves":         func(c *Config) { c.Scenario, c.Producers = "produce-consume", 8 },
		"no room beside held jobs":    func(c *Config) { c.Held, c.Backlog = 2, 16 },
		"a backlog that never falls":  func(c *Config) { c.Scenario, c.Backlog = "put", 10 },
		"a backlog in an open loop":   func(c *Config) { c.Rate, c.Backlog = 1, 10 },
		"producers of a cycle":        func(c *Config) { c.Producers = 3 },
		"a delay of a cycle":          func(c *Config) { c.Delay = time.Second },
		"a timeout of a cycle":        func(c *Config) { c.Timeout = time.Second },
		"a mix of a cycle":            func(c *Config) { c.Mix = Mix{total: 1} },
		"tubes of priorities":         func(c *Config) { c.Scenario, c.Tubes = "priorities", 2 },
		"a depth of timeouts":         func(c *Config) { c.Scenario, c.Depth = "reserve-timeout", 2 },
		"a depth of churn":            func(c *Config) { c.Scenario, c.Depth = "churn", 2 },
		"a count of idleness":         func(c *Config) { c.Scenario = "idle" },
	} {
		cfg := good
		change(&cfg)
		if err := cfg.complete(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
