package load

import (
	"errors"
	"fmt"
	"time"

	"trellis/bench"
)

// complete checks a configuration, fills in what is zero, and returns its scenario. It is called once for each
// configuration.
func complete(c *bench.Config) (*Scenario, error) {
	sc := FindScenario(c.Scenario)
	if sc == nil {
		return nil, fmt.Errorf("scenario %q is not known", c.Scenario)
	}
	if err := misfit(c, sc); err != nil {
		return nil, err
	}
	c.Conns = max(c.Conns, 1)
	c.Depth = max(c.Depth, 1)
	if c.ReplyTimeout <= 0 {
		c.ReplyTimeout = 10 * time.Second
	}
	if sc.shape != nil {
		sc.shape(c)
	}
	if c.Size.IsZero() {
		c.Size = bench.FixedSize(100)
	}
	c.Tubes = max(c.Tubes, 1)
	c.Runs = max(c.Runs, 1)
	c.Threads = max(c.Threads, 1)
	if c.Duration <= 0 {
		c.Duration = 10 * time.Second
	}
	switch {
	case c.Addr.Network == "":
		return nil, errors.New("no address")
	case c.Conns*c.Depth > 1<<24:
		return nil, errors.New("more than 16,777,216 commands in flight are not supported")
	case sc.Uses&Producers != 0 && c.Producers >= c.Conns:
		return nil, fmt.Errorf("%d of %d connections put, and none is left to reserve", c.Producers, c.Conns)
	case c.Backlog > 0 && c.Held*c.Conns >= c.Backlog:
		return nil, fmt.Errorf("connections hold %d jobs, and no more than %d are to be in the server",
			c.Held*c.Conns, c.Backlog)
	case c.Delay%time.Second != 0 || c.Timeout%time.Second != 0:
		return nil, errors.New("delay and timeout must be whole seconds")
	case sc.Uses&Mix != 0 && len(c.Mix.Steps) == 0:
		return nil, fmt.Errorf("the scenario %q needs a file with a mix", sc.Name)
	}
	return sc, nil
}

// misfit returns an error when something is set that no run can have, or that the scenario has no use for. It is called
// before defaults are filled in.
func misfit(c *bench.Config, sc *Scenario) error {
	if min(c.Conns, c.Producers, c.Depth, c.Threads, c.Tubes, c.Runs) < 0 ||
		min(c.Backlog, c.Idle, c.Waiting, c.Held, c.FurtherTubes) < 0 ||
		min(c.Duration, c.Warmup, c.Delay, c.Timeout, c.ReplyTimeout) < 0 || c.Count < 0 || c.Rate < 0 {
		return errors.New("numbers must not be negative")
	}
	for _, o := range []struct {
		option Options
		set    bool
		what   string
	}{
		{Producers, c.Producers > 0, "producers"},
		{Delay, c.Delay > 0, "a delay"},
		{Timeout, c.Timeout > 0, "a timeout"},
		{Mix, len(c.Mix.Steps) > 0, "a mix"},
		{Tubes, c.Tubes > 0, "a number of tubes"},
		{Depth, c.Depth > 1, "a depth"},
		{Count, c.Count > 0, "a count"},
		{Rate, c.Rate > 0, "a rate"},
		{Held, c.Held > 0, "held jobs"},
		{Backlog, c.Backlog > 0, "a backlog"},
	} {
		if o.set && sc.Uses&o.option == 0 {
			return fmt.Errorf("the scenario %q has no use for %s", sc.Name, o.what)
		}
	}
	if c.Backlog > 0 && c.Rate > 0 {
		return errors.New("an open loop has no use for a backlog")
	}
	return nil
}
