package replica

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/replica/entry"
	"trellis/binlog/replica/internal/planted"
)

// Leadership is the time in which this node leads in one term. It is the journal of the queue
// for that time: an engine.Journal and a reactor.Committer. Its methods may be called from any goroutine, with any lock
// of the queue held, and never block, but for a mutex that nobody holds for long.
//
// A position is the number of a unit. Units are batches of records, each of which
// becomes one entry, and read rounds. They form one queue: Committed is the number of
// the last unit that has ended well, as have all before it. Numbers go on from leadership to
// leadership.
type Leadership struct {
	term  uint64 // the term of raft; every entry of this leadership says so
	clock Clock
	wake  func()              // wakes the raft goroutine
	took  func(time.Duration) // is told how long a batch was on its way
	began uint64              // tick of the election

	// serving is set after base, nextID and hooks, which do not change later.
	serving atomic.Bool
	base    int64  // cluster time at Clock's zero
	nextID  uint64 // the first id that no entry up to begin has used
	hooks   Hooks

	allowed   atomic.Uint32 // version, for those who do not have mu
	committed atomic.Uint64
	over      atomic.Bool // written under mu
	held      atomic.Bool // the queue is, until the leadership ends
	passed    atomic.Bool // it was handed over, or is being
	whole     atomic.Bool // it has ended so, and nothing was uncommitted

	most int64 // bytes of records that may be uncommitted, but for one

	mu        sync.Mutex // guards what follows
	units     []*unit    // that have not ended, oldest first
	inFlight  int        // how many of them, the oldest ones, are on their way
	last      journal.Pos
	sequence  uint64 // of the last entry that was proposed
	bytes     int64  // of records that were admitted and are in no unit that has ended
	version   uint16 // of entries: what the next unit may have
	highest   uint64 // id that an entry or a record has named
	written   uint64 // records, for Counters
	spaceLow  bool   // those who are alive and have room on their disks are no majority
	roomAsked bool   // somebody has got ErrRoom
	spare     [][]byte
	settlings []settling // of those who wait in settle
}

// Hooks are what a leadership calls. Those that are nil do nothing. They must not block.
type Hooks struct {
	// OnCommit is called when Committed has grown, with its new value. Two calls may
	// overlap.
	OnCommit func(journal.Pos)

	// OnRoom is called once for all that got ErrRoom, when there is room.
	OnRoom func()
}

func newLeadership(term uint64, after journal.Pos, n *Node) *Leadership {
	l := &Leadership{term: term, clock: n.opts.Clock, wake: n.inbox.wake, took: n.opts.Observer.Committed, last: after}
	l.committed.Store(uint64(after))
	l.most = maxUncommitted
	if most := n.opts.Bodies / 4; most > 0 { // a body cannot leave memory before it is committed
		l.most = min(l.most, most)
	}
	return l
}

// NextID is the first id that was never used.
func (l *Leadership) NextID() uint64 { return l.nextID }

// Now is cluster time, in nanoseconds since 1970. It never goes back, not from leadership
// to leadership either.
func (l *Leadership) Now() int64 { return l.base + l.clock.Mono() }

// Attach sets the hooks. Queue.Serve calls it before the first record.
func (l *Leadership) Attach(h Hooks) { l.hooks = h }

// Put puts a new job on record. Errors are journal.ErrRoom, journal.ErrNoSpace if those
// who are alive and have room on their disks are no majority, and journal.ErrFailed if the
// leadership is lost: then nothing was recorded.
func (l *Leadership) Put(r *journal.Record) (journal.Ticket, error) {
	if r.Size() >= maxBatch {
		return l.putLarge(r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := l.room(r.Size(), r.State == journal.Deleted)
	if err != nil {
		return journal.Ticket{}, err
	}
	record.EncodeFull(b, entry.Salt, r)
	return l.ticket(r), nil
}

// putLarge is Put of a record that has a batch for itself, which is made while nobody waits for mu.
func (l *Leadership) putLarge(r *journal.Record) (journal.Ticket, error) {
	n := r.Size()
	l.mu.Lock()
	err := l.admit(n, r.State == journal.Deleted)
	l.mu.Unlock()
	if err != nil {
		return journal.Ticket{}, err
	}
	b := make([]byte, entry.HeaderSize+n)
	record.EncodeFull(b[entry.HeaderSize:], entry.Salt, r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over.Load() {
		return journal.Ticket{}, journal.ErrFailed
	}
	l.grew(l.add(b))
	return l.ticket(r), nil
}

// ticket is that of a record that was added last. The caller holds mu.
func (l *Leadership) ticket(r *journal.Record) journal.Ticket {
	l.highest = max(l.highest, r.ID)
	return journal.Ticket{Pos: l.last, Segment: segment}
}

// Move records all of a job again. Errors are those of Put.
func (l *Leadership) Move(r *journal.Record, _ journal.Former) (journal.Ticket, error) {
	return l.Put(r)
}

// Replace records all of a job again because it goes to another tube, or its tombstone.
// Errors are those of Put, and for a tombstone those of Delete.
func (l *Leadership) Replace(r *journal.Record, _ journal.Former) (journal.Ticket, error) {
	return l.Put(r)
}

// Update records a job's changed state. Errors are those of Put.
func (l *Leadership) Update(r *journal.Record) (journal.Pos, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := l.room(record.SizeOfUpdate(r), false)
	if err != nil {
		return 0, err
	}
	record.EncodeUpdate(b, entry.Salt, r)
	return l.last, nil
}

// Delete records a job's end. There is always room for it; the error is
// journal.ErrFailed.
func (l *Leadership) Delete(id uint64, _ journal.Former) (journal.Pos, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := l.room(record.SmallSize, true)
	if err != nil {
		return 0, err
	}
	record.EncodeSmall(b, entry.Salt, record.Delete, id)
	return l.last, nil
}

// Set records a tube's setting, or its end. Errors are those of Put.
func (l *Leadership) Set(s *journal.Setting) (journal.Pos, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := l.room(record.SettingSize(s), false)
	if err != nil {
		return 0, err
	}
	record.EncodeSetting(b, entry.Salt, s)
	return l.last, nil
}

// RecordsHolds reports whether all members can read records of sessions on record. What follows is
// called only then.
func (l *Leadership) RecordsHolds() bool { return l.allowed.Load() >= 2 }

// RecordsAll reports whether all members can read all records that this program writes.
func (l *Leadership) RecordsAll() bool { return l.allowed.Load() >= 3 }

// RecordsLinger reports whether all members can read that tubes linger.
func (l *Leadership) RecordsLinger() bool { return l.allowed.Load() >= versionOfLinger }

// Hold records a reservation. There is always room for it; the error is journal.ErrFailed.
func (l *Leadership) Hold(h *journal.Hold) (journal.Pos, error) {
	return l.always(record.HoldSize, func(b []byte) { record.EncodeHold(b, entry.Salt, h) })
}

// EndHold is Update for a job whose time to run has ended. There is always room for it; the error
// is journal.ErrFailed.
func (l *Leadership) EndHold(r *journal.Record) (journal.Pos, error) {
	return l.always(record.SizeOfUpdate(r), func(b []byte) { record.EncodeUpdate(b, entry.Salt, r) })
}

// Close records the end of a session. There is always room for it; the error is journal.ErrFailed.
func (l *Leadership) Close(session uint64) (journal.Pos, error) {
	return l.always(record.SmallSize, func(b []byte) { record.EncodeSmall(b, entry.Salt, record.Close, session) })
}

// Numbers records numbers of loops. There is always room for it; the error is journal.ErrFailed.
func (l *Leadership) Numbers(n *journal.Numbers) (journal.Pos, error) {
	return l.always(record.NumbersSize, func(b []byte) { record.EncodeNumbers(b, entry.Salt, n) })
}

// DeleteFor is Delete, by a command.
func (l *Leadership) DeleteFor(id uint64, _ journal.Former, by journal.Origin) (journal.Pos, error) {
	return l.always(record.SizeOfDelete(&by), func(b []byte) { record.EncodeDelete(b, entry.Salt, id, &by) })
}

// always appends a record of n bytes, whatever room there is.
func (l *Leadership) always(n int64, encode func(b []byte)) (journal.Pos, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := l.room(n, true)
	if err != nil {
		return 0, err
	}
	encode(b)
	return l.last, nil
}

// TakesTrunks reports whether all members take trunks, and forward clients while they do not lead.
func (l *Leadership) TakesTrunks() bool { return l.allowed.Load() >= VersionOfTrunks }

// Over reports whether the leadership has ended.
func (l *Leadership) Over() bool { return l.over.Load() }

// HandedOver tells, once the leadership is over and Settled, that another member was to take over.
func (l *Leadership) HandedOver() bool { return l.passed.Load() }

// allow allows a version of entries to what is appended from now on. With mu held, or before the
// first record.
func (l *Leadership) allow(version uint16) {
	l.version = version
	l.allowed.Store(uint32(version))
}

// Committed is the position up to which all is safe.
func (l *Leadership) Committed() journal.Pos { return journal.Pos(l.committed.Load()) }

// Flush has what was appended, and the round that Barrier has asked for, sent soon. A
// loop calls it once after the commands of a batch.
func (l *Leadership) Flush() {
	l.mu.Lock()
	due := l.due()
	l.mu.Unlock()
	if due {
		l.wake()
	}
}

// position is that of the last unit.
func (l *Leadership) position() journal.Pos {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Barrier returns a position such that Committed proves, once it has reached it, that
// the node led after the call, and that all that was appended before is committed. A
// reply that tells of the queue's state depends on it. A leadership that is over returns a
// position that Committed never reaches.
func (l *Leadership) Barrier() journal.Pos {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over.Load() {
		return math.MaxUint64
	}
	if planted.Has(planted.NoRound) {
		return journal.Pos(l.committed.Load())
	}
	if l.inFlight == len(l.units) {
		l.add(nil)
	}
	return l.last
}

// Counters are for the command stats.
func (l *Leadership) Counters() journal.Counters {
	l.mu.Lock()
	defer l.mu.Unlock()
	return journal.Counters{Written: l.written}
}

// Settled tells, once the leadership is over, that the queue was held and all that it had executed was
// committed: the jobs of the next queue are those of this one.
func (l *Leadership) Settled() bool { return l.whole.Load() }

// allCommitted reports whether nothing but read rounds is under way.
func (l *Leadership) allCommitted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.noBatches()
}

// noBatches is allCommitted, with mu held.
func (l *Leadership) noBatches() bool {
	return !slices.ContainsFunc(l.units, func(u *unit) bool { return !u.round() })
}

// String names the leadership in messages.
func (l *Leadership) String() string { return fmt.Sprintf("the leadership of term %d", l.term) }

// keep keeps the batches that are on their way, for planted.ProposedAgain. With mu held.
func (l *Leadership) keep() {
	for _, u := range l.units[:l.inFlight] {
		if !u.round() && !u.done {
			planted.Keep(u.buf)
		}
	}
}

// end ends the leadership: nothing is appended or committed any more. It returns the last
// position. The raft goroutine calls it, watchRaft while that one hangs, and the applier when
// the node ends.
func (l *Leadership) end() journal.Pos {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over.Swap(true) {
		l.whole.Store(l.held.Load() && l.noBatches())
	}
	if planted.Has(planted.ProposedAgain) {
		l.keep()
	}
	l.units, l.inFlight, l.spare = nil, 0, nil
	l.settled()
	return l.last
}
