package replica

import (
	"cmp"
	"fmt"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/replica/entry"
)

// unit is a batch of records, or a read round. The leadership's mutex guards it.
type unit struct {
	pos       journal.Pos
	buf       []byte // of a batch: room for the header, and records
	raise     uint16 // of a batch without records that allows a later version of entries; else 0
	version   uint16 // of entries: what its records may be of; 0 for the first
	sequence  uint64 // of a batch that is on its way
	sealTime  int64  // the clock's time when a batch was
	firstSeen uint64 // tick when it was first seen waiting; 0 is not yet
	done      bool
}

func (u *unit) round() bool { return u.buf == nil }

// add adds a unit.
func (l *Leadership) add(buf []byte) *unit {
	l.last++
	u := &unit{pos: l.last, buf: buf, version: l.version}
	l.units = append(l.units, u)
	return u
}

// room returns n bytes in the open batch, whose position is then o.last. If always is set,
// it refuses them only when the leadership is over. The caller holds mu.
func (l *Leadership) room(n int64, always bool) ([]byte, error) {
	if err := l.admit(n, always); err != nil {
		return nil, err
	}
	u := l.open(int(n))
	at := len(u.buf)
	u.buf = append(u.buf, make([]byte, n)...)
	l.grew(u)
	return u.buf[at:], nil
}

// admit counts a record of n bytes, or returns why there is no room for it. The caller holds mu.
func (l *Leadership) admit(n int64, always bool) error {
	switch {
	case l.over.Load():
		return journal.ErrFailed
	case l.spaceLow && !always:
		return journal.ErrNoSpace
	case l.bytes+n > l.most && l.bytes > 0 && !always:
		l.roomAsked = true
		return journal.ErrRoom
	}
	l.bytes += n
	return nil
}

// grew notes that a batch holds another record. The caller holds mu.
func (l *Leadership) grew(u *unit) {
	l.written++
	if len(u.buf) >= maxBatch {
		l.wake()
	}
}

// open returns the batch that takes the next record, of n bytes.
func (l *Leadership) open(n int) *unit {
	if len(l.units) > l.inFlight {
		u := l.units[len(l.units)-1]
		if !u.round() && u.raise == 0 && len(u.buf)+n <= maxBatch {
			return u
		}
	}
	return l.add(l.buffer())
}

// buffer returns a buffer with room for a header.
func (l *Leadership) buffer() []byte {
	if n := len(l.spare); n > 0 {
		b := l.spare[n-1]
		l.spare = l.spare[:n-1]
		return b
	}
	return make([]byte, entry.HeaderSize, 16<<10)
}

// recycle keeps the buffer of a committed batch for later, unless it is of an unusual size.
// No entry shares it: raft clones what it is given when it appends it to its log
// (TestRaftCopiesWhatIsProposed).
func (l *Leadership) recycle(b []byte) {
	if cap(b) <= 2*maxBatch && len(l.spare) < maxInFlight {
		l.spare = append(l.spare, b[:entry.HeaderSize])
	}
}

// stamp adds an empty batch, so that followers learn the time, if nothing else waits.
func (l *Leadership) stamp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.units) == 0 {
		l.add(l.buffer())
	}
}

// raise adds a batch that allows a version of entries.
func (l *Leadership) raise(version uint16) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over.Load() {
		l.add(l.buffer()).raise = version
		l.allow(version) // for what stands behind it
	}
}

// choose returns how many units are to be sent now, none if they have to wait for others
// that are on their way. The last one is the batch u, to be sealed, or a round if u is nil.
func (l *Leadership) choose() (n int, u *unit) {
	var f flight
	for _, u := range l.units[:l.inFlight] {
		f.add(u)
	}
	waiting := l.units[l.inFlight:]
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

// full reports whether there is no room in the window for another batch.
func (f *flight) full(u *unit) bool {
	return f.batches > 0 && (f.batches == maxInFlight || f.bytes+int64(len(u.buf)) > maxFlightBytes)
}

// tooShort reports whether a batch is shorter than the average of those on their way, if these
// are two at least. It is worth waiting for more then: a batch costs each member a sync and some
// wakes, however short it is. If nothing more comes it is sent when one of the others is committed.
func (f *flight) tooShort(u *unit) bool {
	size := int64(len(u.buf))
	return f.batches >= 2 && size < longBatch && size*int64(f.batches) < f.bytes
}

// due reports whether something is to be sent now.
func (l *Leadership) due() bool {
	n, _ := l.choose()
	return n > 0
}

// next takes what is to be sent now: a batch, sealed, or a round's position, or neither.
// The raft goroutine alone calls it, and sends what it got.
func (l *Leadership) next() (data []byte, round journal.Pos) {
	u, h := l.take()
	switch {
	case u == nil:
		return nil, 0
	case u.round():
		return nil, u.pos
	}
	h.Seal(u.buf) // without mu: nobody else touches it by now, and it may be long
	return u.buf, 0
}

// take takes the units that are to be sent now. It returns the last one, nil if there is none, and a batch's header.
func (l *Leadership) take() (last *unit, h entry.Header) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, batch := l.choose()
	l.inFlight += n
	switch {
	case n == 0:
		return nil, h
	case batch == nil:
		return l.units[l.inFlight-1], h
	}
	return batch, l.header(batch)
}

// header is that of a batch that becomes an entry. It says that ids of earlier terms that are no
// jobs by now never become jobs: standbys refuse such a job. The caller holds mu.
func (l *Leadership) header(u *unit) entry.Header {
	l.sequence++
	u.sequence, u.sealTime = l.sequence, l.clock.Mono()
	h := entry.Header{
		Kind: entry.Records, Term: l.term, Sequence: u.sequence,
		Stamp: l.Now(), LastID: l.highest, Decided: l.nextID,
	}
	if u.version > 1 {
		h.Format = uint8(u.version)
	}
	if u.raise > 0 {
		h.Kind, h.Version = entry.Raise, u.raise
	}
	return h
}

// begin is the data of the leadership's first entry.
func (l *Leadership) begin(stamp int64, highest uint64) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sequence++
	b := make([]byte, entry.HeaderSize)
	h := entry.Header{Kind: entry.Begin, Term: l.term, Sequence: l.sequence, Stamp: stamp, LastID: highest}
	h.Seal(b)
	return b
}

// complete takes the commit of a batch. The applier calls it.
func (l *Leadership) complete(sequence uint64) error {
	l.mu.Lock()
	if l.over.Load() {
		l.mu.Unlock()
		return nil
	}
	n := 0
	for n < l.inFlight && (l.units[n].round() || l.units[n].done) {
		n++
	}
	if n == l.inFlight || l.units[n].sequence != sequence {
		l.mu.Unlock()
		return fmt.Errorf("%w: batch %d of %v is committed, but another one is next", ErrDiverged, sequence, l)
	}
	l.units[n].done = true
	for _, u := range l.units[:n] {
		u.done = true
	}
	took := l.clock.Mono() - l.units[n].sealTime
	if l.finish() {
		l.wake()
	}
	l.took(time.Duration(took))
	return nil
}

// finish takes ended units out of the queue and calls the hooks. due reports whether something
// is to be sent now. The caller holds mu; finish unlocks it before the hooks run.
func (l *Leadership) finish() (due bool) {
	n := 0
	pos := journal.Pos(l.committed.Load())
	for n < l.inFlight && l.units[n].done {
		u := l.units[n]
		pos = u.pos
		if !u.round() {
			l.bytes -= int64(len(u.buf) - entry.HeaderSize)
			l.recycle(u.buf)
		}
		n++
	}
	left := copy(l.units, l.units[n:])
	clear(l.units[left:])
	l.units = l.units[:left]
	l.inFlight -= n
	l.committed.Store(uint64(pos))
	l.settled()
	room := l.roomAsked && l.bytes <= l.most/2
	l.roomAsked = l.roomAsked && !room
	due = l.due()
	l.mu.Unlock()
	if n > 0 && l.hooks.OnCommit != nil {
		l.hooks.OnCommit(pos)
	}
	if room && l.hooks.OnRoom != nil {
		l.hooks.OnRoom()
	}
	return due
}

// oldest returns the tick when the oldest unit was first seen waiting, now if there is none.
func (l *Leadership) oldest(now uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.units) == 0 {
		return now
	}
	u := l.units[0]
	u.firstSeen = cmp.Or(u.firstSeen, now)
	return u.firstSeen
}
