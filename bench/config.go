package bench

import (
	"errors"
	"fmt"
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
	// Depth is the number of units that a connection has under way at once; each has one command in flight.
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
	// Duration is how long units are begun, after Warmup. Count, when positive, ends a run after so many instead.
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
	// Held is the number of reservations that every connection holds all the time.
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
	if c.Rate > 0 {
		c.Backlog = 0
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
	case c.Rate < 0 || c.Count < 0 || c.Idle < 0 || c.Waiting < 0 || c.Held < 0 || c.FurtherTubes < 0 || c.Backlog < 0:
		return errors.New("numbers must not be negative")
	case sc.consumers && c.Held > 0:
		return fmt.Errorf("connections of the scenario %q cannot hold jobs", c.Scenario)
	case c.Delay%time.Second != 0 || c.Timeout%time.Second != 0:
		return errors.New("delay and timeout must be whole seconds")
	case c.Scenario == "mix" && c.Mix.total == 0:
		return errors.New("the scenario \"mix\" needs a file with a mix")
	}
	return nil
}

// patience returns Patience in nanoseconds.
func (c *Config) patience() int64 { return int64(c.Patience) }
