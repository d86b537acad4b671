package binlog

import (
	"fmt"
	"sync"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/record"
)

// batch is what was appended since the last batch was taken for writing.
type batch struct {
	chunks  []chunk
	records int
	bytes   int64

	// encoders counts the appends that are still filling their part of a chunk. It
	// grows only with the log's mu held, and so not after the batch was taken; the
	// writer waits until it is zero. An encoder may hold a lock of the owner's, but
	// takes none, and waits for nothing.
	encoders *sync.WaitGroup
}

// chunk is bytes of one segment that are written with one call.
type chunk struct {
	seg *segment
	off int64
	buf []byte
}

// chunkSize is the size of a chunk's buffer in bytes, unless a record is larger.
// A batch grows by chunks, so that nothing is copied when it does.
const chunkSize = 256 << 10

// maxIdle is how many buffers are kept for further chunks.
const maxIdle = 32

// Put appends a new job. It fails with ErrRoom, ErrNoSpace, ErrBusy, ErrInvalid,
// ErrFailed or ErrClosed, and then has changed nothing. After ErrRoom
// Hooks.OnRoom is called.
func (l *Log) Put(r *Record) (Ticket, error) {
	return l.full(r, journal.Former{}, false)
}

// Move appends a job's full record again, so that the former one is no longer needed.
// Only Hooks.Migrate calls it. It fails as Put does.
func (l *Log) Move(r *Record, former journal.Former) (Ticket, error) {
	return l.full(r, former, true)
}

// Replace appends a job's full record again because it has another tube now, so that the
// former one is no longer needed. It fails as Put does. If r is the job's tombstone, it fails
// only as Delete does, and Delete has to follow when the tombstone ends.
func (l *Log) Replace(r *Record, former journal.Former) (Ticket, error) {
	return l.full(r, former, false)
}

// full appends a full record, which replaces the former one if there is one. With moves it is
// compaction that appends it, and it says nothing new.
func (l *Log) full(r *Record, former journal.Former, moves bool) (Ticket, error) {
	if !record.Valid(r) {
		return Ticket{}, ErrInvalid
	}
	n, tombstone := r.Size(), tombstoneRoom(r)
	l.mu.Lock()
	var err error
	switch {
	case r.State == journal.Deleted && !moves:
		err = l.admit(n, 0, false)
	case moves:
		err = l.admit(n, l.room.reserved()+l.room.margin/2, true)
	case former.Segment != 0:
		err = l.admit(n, l.room.floor()+l.tombstoneMargin(tombstone), false)
	default:
		err = l.admit(n, l.room.floor()+deleteRoom+l.tombstoneMargin(tombstone), false)
	}
	if err != nil {
		l.mu.Unlock()
		return Ticket{}, err
	}
	b, seg := l.append(n)
	l.link(seg, n, former)
	l.room.tombstones += tombstone - former.Tombstone
	if former.Segment == 0 {
		l.room.jobs++
		l.lastID = max(l.lastID, r.ID)
	}
	if moves {
		l.count.Migrated++
	} else {
		l.count.Written++
	}
	t, salt := Ticket{Pos: l.tail, Segment: seg.Index, Offset: uint32((seg.used - n) / 8)}, seg.salt
	if n < encodeOutside {
		record.EncodeFull(b, salt, r)
		l.mu.Unlock()
		return t, nil
	}
	encoders := l.batch.encoders
	encoders.Add(1)
	l.mu.Unlock()
	record.EncodeFull(b, salt, r)
	encoders.Done()
	return t, nil
}

// tombstoneRoom is what is kept free for the record of the tombstone that a job may leave.
func tombstoneRoom(r *Record) int64 {
	if r.State == journal.Deleted {
		return 0
	}
	return journal.TombstoneSize(r.Tube, &r.Keys)
}

// MaxPending is how many bytes are appended and not yet written before Put, Update, Replace,
// Set and Move return ErrBusy. Deletes and tombstones are always taken.
const MaxPending = 256 << 20

// encodeOutside is the length in bytes from which on a record is encoded without
// mu. For a smaller one that gains nothing: to count the encoders costs as much.
const encodeOutside = 8 << 10

// Update appends a job's changed state: all fields of r but Tube, TTR, Created, Body and
// Keys, which it does not change. It fails as Put does.
func (l *Log) Update(r *Record) (Pos, error) {
	if !record.ValidState(r) {
		return 0, ErrInvalid
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := record.SizeOfUpdate(r)
	if err := l.admit(n, l.room.floor(), false); err != nil {
		return 0, err
	}
	b, seg := l.append(n)
	record.EncodeUpdate(b, seg.salt, r)
	l.count.Written++
	return l.tail, nil
}

// Hold appends that a job is reserved, by a client of this server. It fails as Put does.
func (l *Log) Hold(h *journal.Hold) (Pos, error) {
	if !h.Valid() {
		return 0, ErrInvalid
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admit(journal.HoldSize, l.room.floor(), false); err != nil {
		return 0, err
	}
	b, seg := l.append(journal.HoldSize)
	record.EncodeHold(b, seg.salt, h)
	l.count.Written++
	return l.tail, nil
}

// Delete appends the end of a job, or of a tombstone, whose last full record is the former
// one. Its room was reserved when the job was put, so that it fails only with ErrFailed or
// ErrClosed, or for a moment with ErrRoom.
func (l *Log) Delete(id uint64, former journal.Former) (Pos, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admit(record.SmallSize, 0, false); err != nil {
		return 0, err
	}
	b, seg := l.append(record.SmallSize)
	record.EncodeSmall(b, seg.salt, record.Delete, id)
	l.room.jobs--
	l.room.tombstones -= former.Tombstone
	l.unlink(former)
	l.count.Written++
	return l.tail, nil
}

// link counts a full record or a setting of n bytes in seg, instead of the former one if there
// is one. With mu held.
func (l *Log) link(seg *segment, n int64, former journal.Former) {
	seg.liveCount++
	seg.live += n
	l.room.live += n
	if former.Segment != 0 {
		l.unlink(former)
	}
}

// unlink no longer counts a full record or a setting. With mu held.
func (l *Log) unlink(former journal.Former) {
	l.room.live -= former.Size
	i := int(int64(former.Segment) - int64(l.segs[0].Index))
	if i < 0 || i >= len(l.segs) {
		panic(fmt.Sprintf("binlog: a job claims to be in segment %d; there are %d to %d",
			former.Segment, l.segs[0].Index, l.current().Index))
	}
	s := l.segs[i]
	s.liveCount--
	s.live -= former.Size
	if s.liveCount < 0 || s.live < 0 {
		panic(fmt.Sprintf("binlog: more jobs leave segment %d than were in it", former.Segment))
	}
	if l.shouldCompact() {
		wake(l.wakeCompactor)
	}
	l.pace()
}

// pace decides whether commits wait for compaction: the directory is nearly as large as
// it may be, or will be with the next segment, and there is something to remove. With mu held.
func (l *Log) pace() {
	size := l.opts.SegmentSize
	over := l.room.over(size) + size/8
	if over <= 0 && l.room.short() {
		over += size
	}
	if slow := over > 0 && l.canCompact(); slow != l.slow.Load() {
		l.slow.Store(slow)
		if slow {
			wake(l.wakeCompactor)
		} else {
			wake(l.caughtUp)
		}
	}
}

// canCompact reports whether compaction can remove the oldest segment. It cannot remove one
// that is not written yet, and commits must not wait for that. With mu held.
func (l *Log) canCompact() bool {
	seg := l.segs[0]
	if !seg.sealed || seg.end() > Pos(l.written.Load()) || l.stalled {
		return false
	}
	return seg.liveCount == 0 || !seg.stuck && l.hooks.Migrate != nil && l.room.full == nil
}

func (l *Log) current() *segment { return l.segs[len(l.segs)-1] }

// admit decides whether n bytes can be appended now with keep bytes left free
// behind them. If there is no room, it asks the keeper to make some, and to say so. An append
// with keep 0 must not fail: its room was reserved. An urgent one is compaction's own,
// which cannot wait for compaction when the directory would become too large. With
// mu held.
func (l *Log) admit(n, keep int64, urgent bool) error {
	switch {
	case l.err != nil:
		return ErrFailed
	case l.closing:
		return ErrClosed
	case !l.hasStartRecord:
		return ErrRoom // an owner's timer was faster than Start
	case keep > 0 && l.blocked.Load():
		return ErrNoSpace
	case keep > 0 && l.unwritten >= l.opts.MaxPending:
		return ErrBusy
	case l.fits(n, keep):
		return nil
	case l.room.full != nil:
		return ErrNoSpace
	}
	// The keeper allocates ahead of need, so that this is rare.
	l.room.request.add(want{n, keep, urgent})
	l.count.AppendWaits++
	wake(l.wakeKeeper)
	return ErrRoom
}

// append returns n bytes at the log's end and the segment that they are in. They
// are to be filled before mu is released, or by one of the batch's encoders. There
// must be room.
func (l *Log) append(n int64) ([]byte, *segment) {
	seg := l.current()
	if seg.used+n > seg.limit() {
		l.rotate()
		seg = l.current()
	}
	l.room.free -= n
	if g := l.room.grant.n; g > 0 && n >= g {
		l.room.grant = want{}
	}
	b := l.grow(seg, n)
	l.batch.records++
	if l.room.short() {
		wake(l.wakeKeeper)
		l.pace()
	}
	return b, seg
}

// grow is append without regard to room. With mu held.
func (l *Log) grow(seg *segment, n int64) []byte {
	off := seg.used
	seg.used += n
	l.tail += Pos(n)
	l.room.used += n
	l.unwritten += n
	l.batch.bytes += n
	l.pending.Add(n)
	if k := len(l.batch.chunks); k > 0 {
		c := &l.batch.chunks[k-1]
		if m := int64(len(c.buf)); c.seg == seg && m+n <= int64(cap(c.buf)) {
			c.buf = c.buf[:m+n]
			return c.buf[m : m+n : m+n]
		}
	}
	var buf []byte
	if k := len(l.idle); k > 0 && n <= chunkSize {
		buf, l.idle = l.idle[k-1], l.idle[:k-1]
	} else {
		buf = make([]byte, max(n, chunkSize))
	}
	l.batch.chunks = append(l.batch.chunks, chunk{seg: seg, off: off, buf: buf[:n]})
	return buf[:n:n]
}

// rotate ends the current segment and goes on in the first spare one.
func (l *Log) rotate() {
	seg := l.current()
	l.room.free -= seg.limit() - seg.used
	record.EncodeSmall(l.grow(seg, record.SmallSize), seg.salt, record.End, l.lastID)
	seg.sealed = true
	l.sealed = append(l.sealed, seg)

	next := l.spares[0]
	l.spares = l.spares[1:]
	l.begin(next)
	wake(l.wakeCompactor)
	wake(l.wakeKeeper)
}

// begin makes an empty segment the current one.
func (l *Log) begin(seg *segment) {
	oldest := seg.Index
	if len(l.segs) > 0 {
		oldest = l.segs[0].Index
	}
	seg.Header = record.Header{
		Seed: l.seed, Index: seg.Index, Oldest: oldest,
		Base: l.tail, Synced: Pos(l.synced.Load()),
		LastID: l.lastID, Created: time.Now().UnixNano(),
		Boot: l.boot, Sync: l.opts.Sync,
	}
	seg.salt = seg.Salt()
	l.segs = append(l.segs, seg)
	seg.Encode(l.grow(seg, record.HeaderSize))
}
