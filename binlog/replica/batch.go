package replica

import (
	"fmt"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/replica/entry"
)

// unit is a batch of records, or a read round. The office's mutex guards it.
type unit struct {
	pos      journal.Pos
	buf      []byte // of a batch: room for the header, and records
	raise    uint16 // of a batch without records that allows a later version of entries; else 0
	sequence uint64 // of a batch that is on its way
	sealed   int64  // the clock's time when a batch was
	begun    uint64 // tick when it was first seen waiting; 0 is not yet
	done     bool
}

func (u *unit) round() bool { return u.buf == nil }

// add adds a unit.
func (o *Office) add(buf []byte) *unit {
	o.last++
	u := &unit{pos: o.last, buf: buf}
	o.units = append(o.units, u)
	return u
}

// room returns n bytes in the open batch, whose position is then o.last. If always is set,
// it refuses them only when the office is over. The caller holds mu.
func (o *Office) room(n int64, always bool) ([]byte, error) {
	switch {
	case o.over.Load():
		return nil, journal.ErrFailed
	case o.low && !always:
		return nil, journal.ErrNoSpace
	case o.bytes+n > maxUncommitted && o.bytes > 0 && !always:
		o.refused = true
		return nil, journal.ErrRoom
	}
	u := o.open(int(n))
	at := len(u.buf)
	u.buf = append(u.buf, make([]byte, n)...)
	o.bytes += n
	o.written++
	if len(u.buf) >= maxBatch {
		o.wake()
	}
	return u.buf[at:], nil
}

// open returns the batch that takes the next record, of n bytes.
func (o *Office) open(n int) *unit {
	if len(o.units) > o.sent {
		u := o.units[len(o.units)-1]
		if !u.round() && u.raise == 0 && len(u.buf)+n <= maxBatch {
			return u
		}
	}
	return o.add(o.buffer())
}

// buffer returns a buffer with room for a header.
func (o *Office) buffer() []byte {
	if n := len(o.spare); n > 0 {
		b := o.spare[n-1]
		o.spare = o.spare[:n-1]
		return b
	}
	return make([]byte, entry.HeaderSize, 16<<10)
}

// recycle keeps the buffer of a committed batch for later, unless it is of an unusual size.
// No entry shares it: raft clones what it is given when it appends it to its log
// (TestRaftCopiesWhatIsProposed).
func (o *Office) recycle(b []byte) {
	if cap(b) <= 2*maxBatch && len(o.spare) < maxInFlight {
		o.spare = append(o.spare, b[:entry.HeaderSize])
	}
}

// stamp adds an empty batch, so that followers learn the time, if nothing else waits.
func (o *Office) stamp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.units) == 0 {
		o.add(o.buffer())
	}
}

// raise adds a batch that allows a version of entries.
func (o *Office) raise(version uint16) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over.Load() {
		o.add(o.buffer()).raise = version
	}
}

// choose returns how many units are to be sent now, none if they have to wait for others
// that are on their way. The last one is the batch u, to be sealed, or a round if u is nil.
func (o *Office) choose() (n int, u *unit) {
	var f flight
	for _, u := range o.units[:o.sent] {
		f.add(u)
	}
	waiting := o.units[o.sent:]
	for i, u := range waiting {
		if u.round() {
			continue
		}
		if f.full(u) {
			return 0, nil
		}
		if grows := i == len(waiting)-1 && u.raise == 0; grows && f.tooShort(u) {
			waiting = waiting[:i] // rounds need not wait for it
			break
		}
		// The commit of the batch proves the rounds before it.
		return i + 1, u
	}
	if f.rounds >= maxInFlight {
		return 0, nil
	}
	return len(waiting), nil
}

// flight is what is on its way.
type flight struct {
	batches, rounds int
	bytes           int64 // of batches
}

func (f *flight) add(u *unit) {
	if u.round() {
		f.rounds++
		return
	}
	f.batches++
	f.bytes += int64(len(u.buf))
}

// full tells whether there is no room in the window for another batch.
func (f *flight) full(u *unit) bool {
	return f.batches > 0 && (f.batches == maxInFlight || f.bytes+int64(len(u.buf)) > maxFlightBytes)
}

// tooShort tells whether a batch is shorter than the average of those on their way, if these
// are two at least. It is worth waiting for more then: a batch costs each member a sync and some
// wakes, however short it is. If nothing more comes it is sent when one of the others is committed.
func (f *flight) tooShort(u *unit) bool {
	size := int64(len(u.buf))
	return f.batches >= 2 && size < longBatch && size*int64(f.batches) < f.bytes
}

// due tells whether something is to be sent now.
func (o *Office) due() bool {
	n, _ := o.choose()
	return n > 0
}

// next takes what is to be sent now: a batch, sealed, or a round's position, or neither.
// The raft goroutine alone calls it, and sends what it got.
func (o *Office) next() (data []byte, round journal.Pos) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, u := o.choose()
	o.sent += n
	switch {
	case n == 0:
		return nil, 0
	case u == nil:
		return nil, o.units[o.sent-1].pos
	}
	return o.seal(u), 0
}

// seal makes a batch an entry's data. The header says that ids of earlier reigns that are no
// jobs by now never become jobs: standbys refuse such a job.
func (o *Office) seal(u *unit) []byte {
	o.sequence++
	u.sequence, u.sealed = o.sequence, o.clock.Mono()
	h := entry.Header{
		Kind: entry.Records, Reign: o.reign, Sequence: u.sequence,
		Stamp: o.Now(), LastID: o.highest, Decided: o.nextID,
	}
	if u.raise > 0 {
		h.Kind, h.Version = entry.Raise, u.raise
	}
	h.Seal(u.buf)
	return u.buf
}

// begin is the data of the office's first entry.
func (o *Office) begin(stamp int64, highest uint64) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sequence++
	b := make([]byte, entry.HeaderSize)
	h := entry.Header{Kind: entry.Begin, Reign: o.reign, Sequence: o.sequence, Stamp: stamp, LastID: highest}
	h.Seal(b)
	return b
}

// complete takes the commit of a batch. The applier calls it.
func (o *Office) complete(sequence uint64) error {
	o.mu.Lock()
	if o.over.Load() {
		o.mu.Unlock()
		return nil
	}
	n := 0
	for n < o.sent && (o.units[n].round() || o.units[n].done) {
		n++
	}
	if n == o.sent || o.units[n].sequence != sequence {
		o.mu.Unlock()
		return fmt.Errorf("%w: batch %d of %v is committed, but another one is next", ErrDiverged, sequence, o)
	}
	o.units[n].done = true
	for _, u := range o.units[:n] {
		u.done = true
	}
	took := o.clock.Mono() - o.units[n].sealed
	if o.finish() {
		o.wake()
	}
	o.took(time.Duration(took))
	return nil
}

// finish takes ended units out of the queue and calls the hooks. due tells whether something
// is to be sent now. The caller holds mu; finish unlocks it before the hooks run.
func (o *Office) finish() (due bool) {
	n := 0
	pos := journal.Pos(o.committed.Load())
	for n < o.sent && o.units[n].done {
		u := o.units[n]
		pos = u.pos
		if !u.round() {
			o.bytes -= int64(len(u.buf) - entry.HeaderSize)
			o.recycle(u.buf)
		}
		n++
	}
	left := copy(o.units, o.units[n:])
	clear(o.units[left:])
	o.units = o.units[:left]
	o.sent -= n
	o.committed.Store(uint64(pos))
	if len(o.units) == 0 {
		o.settled()
	}
	room := o.refused && o.bytes <= maxUncommitted/2
	o.refused = o.refused && !room
	due = o.due()
	o.mu.Unlock()
	if n > 0 && o.hooks.OnCommit != nil {
		o.hooks.OnCommit(pos)
	}
	if room && o.hooks.OnRoom != nil {
		o.hooks.OnRoom()
	}
	return due
}

// oldest returns the tick when the oldest unit was first seen waiting, now if there is none.
func (o *Office) oldest(now uint64) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.units) == 0 {
		return now
	}
	u := o.units[0]
	if u.begun == 0 {
		u.begun = now
	}
	return u.begun
}
