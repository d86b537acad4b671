package stats

import "time"

// Tube is what one tube counts, since it came into being.
type Tube struct {
	Name                             string
	Ready, Reserved, Delayed, Buried int
	Urgent                           int
	Held                             int           // of the delayed jobs, those that wait for a group
	Orphaned                         int           // of the reserved jobs, those whose workers have lost their connections
	OldestReady                      time.Duration // how long the oldest ready job has been ready
	Using, Watching, Waiting         int           // connections
	Keys                             int           // counted as for the engine's limit
	Puts, Deletes, Pauses            uint64
	Pause                            time.Duration // as last given, while it is in force
	PauseLeft                        time.Duration

	LimitedBy  Limit         // why no job is handed out
	LimitedFor time.Duration // for how long at least, 0 if that is not known

	Reserves, Releases, Timeouts, Buries uint64
	DeadLetters, Expired                 uint64
	Flushed                              uint64 // of Deletes
	WaitMicros                           uint64 // microseconds for which jobs were ready that were reserved then
	BusyMicros                           uint64 // microseconds for which jobs were reserved, up to now
}

// A Limit is a reason for which a tube hands out no jobs.
type Limit uint8

// The limits, in the order in which they are told of where there are several.
const (
	NoLimit Limit = iota
	PauseLimit
	ReservedLimit
	RateLimit
)

// String returns the word of stats-tube-x.
func (l Limit) String() string {
	return [...]string{NoLimit: "none", PauseLimit: "pause", ReservedLimit: "reserved", RateLimit: "rate"}[l]
}
