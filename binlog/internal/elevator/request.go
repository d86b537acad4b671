package elevator

import (
	"time"

	"trellis/binlog/journal"
)

// Request is for a range of a file, a record or more. It belongs to the elevator from Add until it
// has ended, but for Of.
type Request[T any] struct {
	Place    journal.Place // of the record: the file, and what must be written before it is read
	From, To int64         // in the file, in bytes
	Lane     journal.Lane
	Turn     uint64 // of an urgent one: who asks
	Of       T      // what it is for

	phase phase
	tries int       // reads that have failed
	next  int64     // what is not read yet begins here
	due   time.Time // to be tried again, or given up if it is not written
}

// phase says where a request is.
//
//	Add:      -> ended (refused), unwritten or waiting
//	Written:  unwritten -> waiting
//	Next:     waiting -> reading, delayed -> waiting
//	Ended:    reading -> ended, waiting (the next piece), delayed, suspect; of a probe: suspect -> ended
//	Tick:     unwritten -> ended; if a read hangs, its own and all -> ended but those that others read
//	Fail:     unwritten -> ended
//	Close:    all but reading -> ended
type phase uint8

const (
	ended     phase = iota
	unwritten       // until its record is
	waiting         // in a queue, and in a block if it may share a read
	reading         // a read has it
	delayed         // to be tried again
	suspect         // was tried for the last time; a probe says whether the disk is bad, or this place
)

// An Outcome is what a read has found of a request.
type Outcome uint8

// The outcomes.
const (
	Sound    Outcome = iota
	Gone             // there is no such file any more
	Misfit           // the bytes are not what was asked for
	Failed           // the system could not read them
	Unopened         // nor open the file
)

// End is a request that has ended, and why: nil if it is sound.
type End[T any] struct {
	*Request[T]
	Err error
}

// Read is to be made, and then given to Returned and Ended. The elevator owns it, and nothing in it changes meanwhile
// but what is not exported.
type Read[T any] struct {
	File     uint32
	From, To int64
	Lane     journal.Lane
	Requests []*Request[T] // in the order of their places

	// Probe says that any place of another file is to be read, to see whether the disk gives anything.
	Probe bool

	began time.Time
	state answer
}

// answer says whether the system has answered a read.
type answer uint8

const (
	due      answer = iota // not yet
	returned               // in time
	hung                   // it was given up
)

// Load says what else needs the disk.
type Load struct {
	Commits    bool // they wait for it just now
	Compaction bool // commits wait until it has removed something
}
