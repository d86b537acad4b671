package bench

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Config says what to run. What is zero gets a default, in some cases one of the scenario's.
type Config struct {
	// Addr is where the server listens.
	Addr Address `json:"address"`
	// Scenario is one of Scenarios.
	Scenario string `json:"scenario"`
	// Conns is the number of connections that carry the scenario, and Producers how many of them put, in a
	// scenario where others reserve.
	Conns     int `json:"connections"`
	Producers int `json:"producers"`
	// Depth is the number of units that a connection has under way at once; each has one command in flight. A
	// connection that takes what others put has one reserve in flight all the same.
	Depth int `json:"depth"`
	// Threads is the number of threads that drive the connections, each for its share of them.
	Threads int `json:"threads"`
	// Size is the distribution of body sizes.
	Size Sizes `json:"size"`
	// Tubes is the number of tubes that the jobs are spread over.
	Tubes int `json:"tubes"`
	// Rate is the number of units that are begun in a second, whether or not the server keeps up (open loop). Zero
	// begins a unit whenever one ends (closed loop).
	Rate float64 `json:"rate"`
	// Duration is how long units are begun, after Warmup. In an open loop, those that were due by then and had to wait are
	// begun up to ten seconds later. Count, when positive, ends a run after so many instead.
	Duration time.Duration `json:"duration_ns"`
	Count    int64         `json:"count"`
	// Warmup is how long the load runs before anything is recorded.
	Warmup time.Duration `json:"warmup_ns"`
	// Runs is how often all is repeated, with new connections.
	Runs int `json:"-"`
	// Seed makes everything random come out alike. Run number n uses Seed+n.
	Seed uint64 `json:"seed"`
	// Backlog, in a closed loop, holds units back while so many jobs are in the server. Zero: the scenario's default,
	// which for most is no limit.
	Backlog int `json:"backlog"`
	// Idle and Waiting are numbers of further connections: ones that do nothing, and ones that wait for a job that
	// never comes.
	Idle    int `json:"idle"`
	Waiting int `json:"waiting"`
	// Held is the number of reservations that every connection holds all the time. With any, memory per connection is
	// not told.
	Held int `json:"held"`
	// FurtherTubes is the number of further tubes, each with one delayed job.
	FurtherTubes int `json:"further_tubes"`
	// Delay is the longest delay of the scenario "delayed", Timeout the timeout of "reserve-timeout", Mix the
	// commands of "mix". The times are whole seconds.
	Delay   time.Duration `json:"delay_ns"`
	Timeout time.Duration `json:"timeout_ns"`
	Mix     Mix           `json:"-"`
	// CPUs are the processors that the threads may use. Empty: all. Linux only.
	CPUs []int `json:"cpus"`
	// Keep leaves the jobs in the server, for one that is thrown away afterwards. They are counted, not looked at.
	Keep bool `json:"keep"`
	// Patience is how long no reply at all may come before the run is given up. Default 10 seconds.
	Patience time.Duration `json:"patience_ns"`
	// Log keeps a histogram of every second for Result.WriteLog.
	Log bool `json:"-"`
	// Progress, when set, is called several times a second from a goroutine of Run's.
	Progress func(Progress) `json:"-"`

	// afterLoad, when set, is called when the load has ended and its jobs are still in the server, and returns a
	// connection to where they are from then on.
	afterLoad func() (*control, error)
}

// Progress is how far a run has come.
type Progress struct {
	Run      int           // from 1
	Phase    string        // "connecting", "warming up", "running", "cleaning up"
	Elapsed  time.Duration // of the phase
	Commands int64
	Units    int64
	Errors   int64
}

// complete checks the configuration and fills in what is zero. It is called once for a configuration.
func (c *Config) complete() error {
	sc := findScenario(c.Scenario)
	if sc == nil {
		return fmt.Errorf("scenario %q is not known", c.Scenario)
	}
	if err := c.misfit(sc); err != nil {
		return err
	}
	c.Conns = max(c.Conns, 1)
	c.Depth = max(c.Depth, 1)
	if c.Patience <= 0 {
		c.Patience = 10 * time.Second
	}
	if sc.shape != nil {
		sc.shape(c)
	}
	if c.Size.text == "" {
		c.Size = fixedSize(100)
	}
	c.Tubes = max(c.Tubes, 1)
	c.Runs = max(c.Runs, 1)
	c.Threads = max(c.Threads, 1)
	if c.Duration <= 0 {
		c.Duration = 10 * time.Second
	}
	switch {
	case c.Addr.Network == "":
		return errors.New("no address")
	case c.Conns*c.Depth > 1<<24:
		return errors.New("more than 16,777,216 commands in flight are not supported")
	case sc.consumers && c.Producers >= c.Conns:
		return fmt.Errorf("%d of %d connections put, and none is left to reserve", c.Producers, c.Conns)
	case c.Backlog > 0 && c.Held*c.Conns >= c.Backlog:
		return fmt.Errorf("connections hold %d jobs, and no more than %d are to be in the server", c.Held*c.Conns, c.Backlog)
	case c.Delay%time.Second != 0 || c.Timeout%time.Second != 0:
		return errors.New("delay and timeout must be whole seconds")
	case c.Scenario == "mix" && c.Mix.total == 0:
		return errors.New("the scenario \"mix\" needs a file with a mix")
	}
	return nil
}

// misfit returns an error when something was set that no run can have, or of which the scenario makes no use. Defaults
// are not filled in yet.
func (c *Config) misfit(sc *scenario) error {
	if min(c.Conns, c.Producers, c.Depth, c.Threads, c.Tubes, c.Runs, c.Backlog, c.Idle, c.Waiting, c.Held, c.FurtherTubes) < 0 ||
		min(c.Duration, c.Warmup, c.Delay, c.Timeout, c.Patience) < 0 || c.Count < 0 || c.Rate < 0 {
		return errors.New("numbers must not be negative")
	}
	is := func(names ...string) bool { return slices.Contains(names, sc.name) }
	for _, o := range []struct {
		set, used bool
		what      string
	}{
		{c.Producers > 0, sc.consumers, "producers"},
		{c.Delay > 0, is("delayed"), "a delay"},
		{c.Timeout > 0, is("reserve-timeout"), "a timeout"},
		{c.Mix.total > 0, is("mix"), "a mix"},
		{c.Tubes > 0, !is("priorities", "idle"), "a number of tubes"},
		{c.Depth > 1, !is("churn", "reserve-timeout", "idle"), "a depth"},
		{c.Count > 0, !is("idle"), "a count"},
		{c.Rate > 0, !is("idle"), "a rate"},
		{c.Held > 0, !sc.consumers && !is("churn", "idle"), "held jobs"},
		// Puts alone would wait for ever when it is reached.
		{c.Backlog > 0, !is("put", "reserve-timeout", "mix", "idle"), "a backlog"},
	} {
		if o.set && !o.used {
			return fmt.Errorf("the scenario %q has no use for %s", sc.name, o.what)
		}
	}
	if c.Backlog > 0 && c.Rate > 0 {
		return errors.New("an open loop has no use for a backlog")
	}
	return nil
}

// patience returns Patience in nanoseconds.
func (c *Config) patience() int64 { return int64(c.Patience) }
