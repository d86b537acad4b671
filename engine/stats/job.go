package stats

import "trellis/engine/internal/clock"

// A Job is what clients are told of a job.
type Job struct {
	Tube                                        string
	State                                       string
	Pri, TTR, Delay                             uint32
	Age, Left                                   clock.Time // Left until a delay or a time to run ends
	Segment                                     uint32     // of the journal, in which its last full record stands
	Reserves, Timeouts, Releases, Buries, Kicks uint32
}

// A ListedJob is what a list shows of a job.
type ListedJob struct {
	ID        uint64
	Pri, Size uint32
	Age, Left clock.Time // Left until a delay or a time to run ends, -1 in other states
}

// A Group is what is told of a group.
type Group struct{ Members, Buried, Held int }
