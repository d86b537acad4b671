package bench

import "time"

// Config describes a load. What is zero gets a default; some defaults are the scenario's.
type Config struct {
	// Addr is where the server listens.
	Addr Address `json:"address"`
	// Token is what each connection authenticates with before anything else, by the command auth of trellisd; "" for
	// servers that ask for none. Its client needs all rights to tubes whose names begin with "bench-".
	Token string `json:"-"`
	// Scenario is the name of one of load.Scenarios.
	Scenario string `json:"scenario"`
	// Conns is the number of connections that carry the scenario. Producers is how many of them put, in a scenario in
	// which others reserve.
	Conns     int `json:"connections"`
	Producers int `json:"producers"`
	// Depth is the number of units that a connection has under way at once, each with one command in flight. A
	// connection that reserves what others put has one reserve in flight whatever the depth.
	Depth int `json:"depth"`
	// Threads is the number of threads that drive the connections, each its share of them.
	Threads int `json:"threads"`
	// Size is the distribution of body sizes.
	Size Sizes `json:"size"`
	// Tubes is the number of tubes that the jobs are spread over.
	Tubes int `json:"tubes"`
	// Rate is the number of units that are begun in a second, whether or not the server keeps up (open loop). Zero
	// begins a unit whenever one ends (closed loop).
	Rate float64 `json:"rate"`
	// Duration is how long new units begin, from the end of Warmup. In an open loop, units that were due by then and had
	// to wait begin up to ten seconds later. Count, when positive, ends a run after so many units instead.
	Duration time.Duration `json:"duration_ns"`
	Count    int64         `json:"count"`
	// Warmup is how long the load runs before anything is recorded.
	Warmup time.Duration `json:"warmup_ns"`
	// Runs is how often the load is repeated, with new connections each time.
	Runs int `json:"-"`
	// Seed determines all that is random but the names of tubes. Run n, from 0, uses Seed+n.
	Seed uint64 `json:"seed"`
	// Backlog, in a closed loop, is how many jobs may be in the server before no more units begin. Zero: the
	// scenario's default, which is no limit for most.
	Backlog int `json:"backlog"`
	// Idle and Waiting are numbers of further connections: ones that do nothing, and ones that wait for a job that
	// never comes.
	Idle    int `json:"idle"`
	Waiting int `json:"waiting"`
	// Held is the number of reservations that every connection holds all the time. With any, the memory of a
	// connection is not measured.
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
	// Keep leaves the jobs in the server, for callers that stop it afterwards. They are counted, but not compared.
	Keep bool `json:"keep"`
	// ReplyTimeout is how long the load may go without any reply before the run is given up. Default 10 seconds; Delay or
	// Timeout is added.
	ReplyTimeout time.Duration `json:"patience_ns"`
	// Log keeps a histogram of every second for Result.WriteLog.
	Log bool `json:"-"`
	// Progress, when set, is called several times a second, from one goroutine of the run's own.
	Progress func(Progress) `json:"-"`
	// Beside are the ids of processes on this machine without which the server would not serve this load, such as a proxy
	// in front of it: their CPU time and their memory count as the server's, where those come from the kernel.
	Beside []int `json:"-"`
	// Sample, when set, is called when recording begins and when it ends. It must not wait for anything, because the
	// thread that calls it may be driving connections.
	Sample func() `json:"-"`
	// AfterLoad, when set, is called when the load has ended, all its connections are closed, and its jobs are still in
	// the server. It may restart the server. It returns where the jobs are from then on, to be compared and taken out.
	AfterLoad func() (Address, error) `json:"-"`
}

// LongestTail bounds how long after the end of an open loop a unit that was due before it may still begin. A unit that
// could not begin by then counts with the time that it has waited.
const LongestTail = 10 * time.Second

// Progress is how far a run has come.
type Progress struct {
	// Run is the number of the run, from 1.
	Run int
	// Phase is "connecting", "warming up", "running" or "cleaning up", Elapsed the time since the phase began.
	Phase   string
	Elapsed time.Duration
	// Commands and Units are those that ended while results were recorded, Errors the violations so far.
	Commands, Units, Errors int64
}
