package bench

import (
	"strings"
	"testing"
)

func TestParseMix(t *testing.T) {
	m, err := ParseMix(strings.NewReader("# nothing\n\n3 put pri=1-5 delay=2\n7 kick bound=9 # comment\n"))
	if err != nil {
		t.Fatal(err)
	}
	if m.total != 10 || len(m.steps) != 2 || m.steps[0].until != 3 || m.steps[0].span[mixPri] != (span{1, 5}) ||
		m.steps[0].span[mixDelay] != (span{2, 2}) || m.steps[1].span[mixBound] != (span{9, 9}) {
		t.Errorf("got %+v", m)
	}
	for _, text := range []string{"", "# nothing", "put", "0 put", "x put", "1 fly", "1 put pri=x", "1 put pri=5-1", "1 put size=3", "1 put pri"} {
		if _, err := ParseMix(strings.NewReader(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	good := quick(newFakeServer(t, "tcp", fakeFaults{}).addr, "cycle")
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
	} {
		cfg := good
		change(&cfg)
		if err := cfg.complete(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
