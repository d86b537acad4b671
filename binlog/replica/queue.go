package replica

import (
	"context"

	"trellis/binlog/journal"
	"trellis/binlog/replica/snapshot"
)

// Standby is an empty queue that is fed with what is committed. An engine.Follower is
// one. The applier alone calls it.
type Standby interface {
	// Full returns the record that was given with the job before, none if the id is not
	// known, and Delete the job's segment, 0 if the id is not known.
	snapshot.Standby

	// Strict ends the loading of a snapshot: from now on errors are a put of a known id
	// and a change of an unknown one. The node ends with them.
	Strict()
	// Stamp tells when the records that follow were made, in nanoseconds since 1970. It
	// does not go back.
	Stamp(at int64)
	// Decided tells that no id below id is going to become a job if it is none now.
	Decided(id uint64)
	// Tidy gives back some of the memory that jobs do not need any more, in a millisecond or
	// so. It returns true if it is to be called again as soon as nothing else is to be done.
	Tidy() (more bool)
}

// Queue is what a node replicates: its jobs, and those who execute commands on them.
// All methods but Hold, Flush, Walk, Settings, Numbers and Digest are called by one goroutine, the
// applier; none is called after Run has returned. An error ends the node.
type Queue interface {
	// Standby begins an empty queue. start is the cluster time of its beginning. The
	// queue before is given up, and its memory is free, when this returns.
	Standby(start int64) (Standby, error)

	// Serve tells that the node leads and that the standby has all that is committed:
	// commands may be executed, with o as their journal, until Retire.
	Serve(l *Leadership) error

	// Retire tells that leadership is lost. When it returns nothing executes, and no
	// reply leaves any more: the connections were reset without a word. If the leadership is Settled,
	// connections may wait for the next one instead.
	Retire(l *Leadership)

	// Hold stops executing, for a transfer, and returns when nothing executes any more;
	// or goes on. What was executed may still be committed and replied to. It may be
	// called at any time, also without a leadership; Retire ends a hold.
	Hold(on bool)

	// Flush gives the system every reply that is committed, for clients that take them, or
	// until ctx ends. The queue is held.
	Flush(ctx context.Context)

	// Walk visits jobs in the order of their ids, from the id `from` on, and at most n of
	// them, each with its hold, or nil if nothing on record holds it. It returns the id to go on
	// with, 0 at the end. An error of f's ends it, and is
	// returned with the id of f's job. Each record is consistent in itself; the record, its
	// body and the hold are valid during the call of f only, strings longer. Any goroutine may call Walk
	// while the queue serves or is fed, and it ends with an error if the queue is given up.
	// Retire and Standby may wait for its end, so f waits for nothing.
	Walk(from uint64, n int, f func(*journal.Record, *journal.Hold) error) (next uint64, err error)

	// Settings tells the settings of tubes that are in force, as they are at one
	// moment. Any goroutine may call it, as Walk.
	Settings(f func(*journal.Setting) error) error

	// Numbers tells the numbers of loops that were given and are not gone, as they are at one
	// moment, and then, with an empty range, the first that was never given, unless it is the
	// first of all. Any goroutine may call it, as Walk.
	Numbers(f func(*journal.Numbers) error) error

	// Applied tells that all entries up to index are applied, and what those behind the index before have
	// done for commands of clients. An entry that is applied again, to a queue that is made anew, tells of
	// nothing; nor does one of a leadership of this node's, whose clients are its own. The effects are
	// valid during the call only.
	Applied(index uint64, effects []journal.Effect)

	// EffectsLost tells that a snapshot is taken for entries whose effects Applied does not tell.
	EffectsLost()

	// Digest is of all jobs, settings and holds as they are on record, of which the last was made
	// at stamp. Any goroutine may call it.
	Digest(stamp int64) Digest
}

// Digest is equal for equal jobs, settings and holds, and different for different ones but by
// chance.
type Digest struct {
	Jobs  uint64 // the number of jobs
	Sum   uint64 // of jobs and settings
	Holds uint64 // the sum of holds whose times to run end behind the stamp
}

// segment is the segment of every job in a cluster. Any number but 0 would do: 0 is what a
// Standby returns for an id that it does not know.
const segment = 1
