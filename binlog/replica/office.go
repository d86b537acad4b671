package replica

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/replica/entry"
	"trellis/binlog/replica/internal/planted"
)

// Office is one reign of this node: the time from one election that it has won to the
// loss of that office. It is the journal of the queue for that time: an engine.Journal
// and a reactor.Committer. Its methods may be called from any goroutine, with any lock
// of the queue held, and never block, but for a mutex that nobody holds for long.
//
// A position is the number of a unit. Units are batches of records, each of which
// becomes one entry, and read rounds. They form one queue: Committed is the number of
// the last unit that has ended well, as have all before it. Numbers go on from office to
// office.
type Office struct {
	reign uint64 // the term of raft; every entry of this office says so
	clock Clock
	wake  func()              // has the raft goroutine look
	took  func(time.Duration) // is told how long a batch was on its way
	began uint64              // tick of the election

	// serving is set after base, nextID and hooks, which do not change later.
	serving atomic.Bool
	base    int64  // cluster time at Clock's zero
	nextID  uint64 // the first id that no entry up to begin has used
	hooks   Hooks

	committed atomic.Uint64
	over      atomic.Bool // written under mu

	mu       sync.Mutex // guards what follows
	units    []*unit    // that have not ended, oldest first
	sent     int        // how many of them, the oldest ones, are on their way
	last     journal.Pos
	sequence uint64 // of the last entry that was proposed
	bytes    int64  // of records in units
	highest  uint64 // id that an entry or a record has named
	written  uint64 // records, for Counters
	low      bool   // those who are alive and have room on their disks are no majority
	refused  bool   // somebody has got ErrRoom
	spare    [][]byte
	idle     []chan struct{} // closed when there are no units, or the office is over
}

// Hooks are what an office calls. Those that are nil do nothing. They must not block.
type Hooks struct {
	// OnCommit is called when Committed has grown, with its new value. Two calls may
	// overlap.
	OnCommit func(journal.Pos)

	// OnRoom is called once for all that got ErrRoom, when there is room.
	OnRoom func()
}

func newOffice(reign uint64, after journal.Pos, n *Node) *Office {
	o := &Office{reign: reign, clock: n.opts.Clock, wake: n.inbox.ring, took: n.opts.Observer.Committed, last: after}
	o.committed.Store(uint64(after))
	return o
}

// NextID is the first id that was never used.
func (o *Office) NextID() uint64 { return o.nextID }

// Now is cluster time, in nanoseconds since 1970. It never goes back, not from office
// to office either.
func (o *Office) Now() int64 { return o.base + o.clock.Mono() }

// Attach sets the hooks. Queue.Serve calls it before the first record.
func (o *Office) Attach(h Hooks) { o.hooks = h }

// Put puts a new job on record. Errors are journal.ErrRoom, journal.ErrNoSpace if those
// who are alive and have room on their disks are no majority, and journal.ErrFailed if the
// office is lost: then nothing was recorded.
func (o *Office) Put(r *journal.Record) (journal.Ticket, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, err := o.room(r.Size(), r.State == journal.Deleted)
	if err != nil {
		return journal.Ticket{}, err
	}
	record.EncodeFull(b, entry.Salt, r)
	o.highest = max(o.highest, r.ID)
	return journal.Ticket{Pos: o.last, Segment: segment}, nil
}

// Move records all of a job again. Errors are those of Put.
func (o *Office) Move(r *journal.Record, _ journal.Former) (journal.Ticket, error) { return o.Put(r) }

// Replace records all of a job again because it goes to another tube, or its tombstone.
// Errors are those of Put, and for a tombstone those of Delete.
func (o *Office) Replace(r *journal.Record, _ journal.Former) (journal.Ticket, error) {
	return o.Put(r)
}

// Update records a job's changed state. Errors are those of Put.
func (o *Office) Update(r *journal.Record) (journal.Pos, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, err := o.room(record.SizeOfUpdate(r), false)
	if err != nil {
		return 0, err
	}
	record.EncodeUpdate(b, entry.Salt, r)
	return o.last, nil
}

// Delete records a job's end. There is always room for it; the error is
// journal.ErrFailed.
func (o *Office) Delete(id uint64, _ journal.Former) (journal.Pos, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, err := o.room(record.SmallSize, true)
	if err != nil {
		return 0, err
	}
	record.EncodeSmall(b, entry.Salt, record.Delete, id)
	return o.last, nil
}

// Set records a tube's setting of dead letters, or its end. Errors are those of Put.
func (o *Office) Set(s *journal.Setting) (journal.Pos, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, err := o.room(record.SettingSize(s), false)
	if err != nil {
		return 0, err
	}
	record.EncodeSetting(b, entry.Salt, s)
	return o.last, nil
}

// Committed is the position up to which all is safe.
func (o *Office) Committed() journal.Pos { return journal.Pos(o.committed.Load()) }

// Flush has what was appended, and the round that Barrier has asked for, sent soon. A
// loop calls it once after the commands of a batch.
func (o *Office) Flush() {
	o.mu.Lock()
	due := o.due()
	o.mu.Unlock()
	if due {
		o.wake()
	}
}

// position is that of the last unit.
func (o *Office) position() journal.Pos {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// Barrier returns a position such that Committed proves, once it has reached it, that
// the node led after the call, and that all that was appended before is committed. A
// reply that tells of the queue's state depends on it. An office that is over returns a
// position that Committed never reaches.
func (o *Office) Barrier() journal.Pos {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over.Load() {
		return math.MaxUint64
	}
	if planted.Has(planted.NoRound) {
		return journal.Pos(o.committed.Load())
	}
	if o.sent == len(o.units) {
		o.add(nil)
	}
	return o.last
}

// Counters are for the command stats.
func (o *Office) Counters() journal.Counters {
	o.mu.Lock()
	defer o.mu.Unlock()
	return journal.Counters{Written: o.written}
}

// String names the office in messages.
func (o *Office) String() string { return fmt.Sprintf("the office of term %d", o.reign) }

// keep keeps the batches that are on their way, for planted.ProposedAgain. With mu held.
func (o *Office) keep() {
	for _, u := range o.units[:o.sent] {
		if !u.round() && !u.done {
			planted.Keep(u.buf)
		}
	}
}

// end ends the office: nothing is appended or committed any more. It returns the last
// position. The raft goroutine calls it, watchRaft while that one hangs, and the applier when
// the node ends.
func (o *Office) end() journal.Pos {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over.Store(true)
	if planted.Has(planted.ProposedAgain) {
		o.keep()
	}
	o.units, o.sent, o.spare = nil, 0, nil
	o.settled()
	return o.last
}
