// Package stats has the numbers that the engine shows to clients, metrics and the console: copies, of one moment each.
package stats

import (
	"trellis/codec"
	"trellis/engine/histogram"
)

// Server is what the whole server counts. Counters are since its start.
type Server struct {
	Ready, Reserved, Delayed, Buried int
	Urgent                           int // of the ready jobs, those with a priority under 1024
	Held                             int // of the delayed jobs, those that wait for a group
	Blocked                          int // of these, those of whose group all members are buried, which keeps them waiting

	Puts     uint64 // jobs that were accepted
	Timeouts uint64 // reservations whose time to run ended

	// Jobs that were delayed because a reservation had failed, by how it had ended.
	RetriesReleased, RetriesTimedOut, RetriesDisconnected uint64

	DeadLetters uint64 // jobs that were buried because their attempts were used up
	// Jobs that have expired, by what became of them.
	ExpiredDeleted, ExpiredBuried uint64

	UniqueKeys  int    // unique keys of jobs: one key in two tubes counts twice
	LimitedKeys int    // limited keys of jobs, counted in the same way
	FairKeys    int    // fair keys of jobs, counted in the same way
	Tombstones  int    // unique keys that deleted jobs still keep
	Groups      int    // that have a member or hold a job
	Fired       uint64 // jobs that were held until their groups were complete
	Duplicates  uint64 // puts that made no job, because their unique key had a holder

	Commands [codec.NumCommands]uint64 // those that were well formed

	ReadyTimes histogram.Histogram // how long jobs were ready before they were reserved

	Connections int64  // open ones
	Producers   int64  // of them, those that have put
	Workers     int64  // of them, those that have reserved
	Waiting     int64  // of them, those that wait for a job
	Opened      uint64 // connections since the start

	Tubes    int
	Settings int // of tubes' names
	Draining bool
	Memory   int64 // bytes mapped for jobs and their bodies
	Bodies   int64 // of them, those for bodies

	// Commands that a limit made the engine refuse.
	RefusedMemory, RefusedBodies, RefusedTubes, RefusedWatching, RefusedKeys uint64
}
