package binlog

import (
	"errors"
	"io"
	"runtime"
	"syscall"
	"time"

	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// flight is the batch that is being written. The log's wmu guards it.
type flight struct {
	batch
	next         int   // the chunk that is being written
	writtenBytes int64 // bytes of it that are written
	end          Pos
}

// Flush commits what was appended, or sees to it that it soon will be. A loop
// calls it once after all commands of a round, holding no lock that the owner
// needs in OnCommit. If the log does not wait for syncs, nobody else writes just
// now, and there is not much to write, it writes at once: then Committed has moved
// when it returns.
func (l *Log) Flush() {
	if l.pending.Load() == 0 {
		return
	}
	for range 4 {
		if l.slowWrite() {
			break
		}
		if !l.wmu.TryLock() {
			// The holder writes these records too, because it looks at wanted after it
			// has released the lock; or it has released it already.
			l.flushWanted.Store(true)
			if !l.wmu.TryLock() {
				return
			}
		}
		l.write()
		l.wmu.Unlock()
		if !l.flushWanted.Load() {
			return
		}
	}
	l.waker.wake()
}

// flushSize is the most bytes that Flush writes itself. More takes a millisecond or
// so, as does the encoding of a record that large.
const flushSize = 1 << 20

// slowWrite reports whether a write would take long, or might have to wait for the
// disk.
func (l *Log) slowWrite() bool {
	return l.opts.Sync == SyncAlways || l.pending.Load() > flushSize ||
		l.syncing.Load() || l.blocked.Load() || l.slow.Load()
}

// commit writes all that was appended, and syncs it if that is what committed
// means.
func (l *Log) commit() {
	l.wmu.Lock()
	l.write()
	l.unlockWriter()
	if l.opts.Sync == SyncAlways && !l.failed.Load() && !l.blocked.Load() {
		l.sync()
	}
}

// unlockWriter releases wmu, and leaves the write of a Flush that did not get wmu to the committer.
func (l *Log) unlockWriter() {
	l.wmu.Unlock()
	if l.flushWanted.Load() {
		l.waker.wake()
	}
}

// yieldInterval is how long the committer commits at most without a call of the runtime's
// scheduler. After 10 ms the runtime's monitor would take its processor away at each of its
// system calls, and wake up for that every 70 microseconds, on the same processor perhaps.
const yieldInterval = 8 * time.Millisecond

// runCommitter is the committer's goroutine.
func (l *Log) runCommitter() {
	retry := time.AfterFunc(farAway, l.waker.wake)
	defer retry.Stop()
	yielded := time.Now()
	for {
		if now := time.Now(); now.Sub(yielded) >= yieldInterval {
			yielded = now
			runtime.Gosched()
		}
		l.waker.wait()
		select {
		case <-l.stop:
			return
		default:
		}
		l.awaitCompaction()
		l.commit()
		switch {
		case l.failed.Load():
			return
		case l.blocked.Load():
			retry.Reset(50 * time.Millisecond)
		}
	}
}

// maxCompactionWait is the longest that a commit waits for compaction, and that room is
// withheld from appends when the next segment would make the directory too large.
// It has an end because compaction may be unable to remove anything.
const maxCompactionWait = 4 * time.Millisecond

// awaitCompaction lets compaction catch up.
func (l *Log) awaitCompaction() {
	if !l.slow.Load() {
		return
	}
	timeout := time.NewTimer(maxCompactionWait)
	defer timeout.Stop()
	for l.slow.Load() {
		select {
		case <-l.stop:
			return
		case <-timeout.C:
			return
		case <-l.caughtUp:
		}
	}
}

// write writes all that was appended before the call. With wmu held.
func (l *Log) write() {
	l.flushWanted.Store(false)
	if len(l.flight.chunks) > 0 && !l.writeFlight() {
		return // there is no space still
	}
	if l.take() {
		l.flight.encoders.Wait()
		l.writeFlight()
	}
}

// writeFlight writes what is left of the batch in flight. It reports false
// if that cannot be.
func (l *Log) writeFlight() bool {
	f := &l.flight
	if l.failed.Load() {
		return false
	}
	began := time.Now()
	for f.next < len(f.chunks) {
		c := &f.chunks[f.next]
		n, err := c.seg.file.WriteAt(c.buf[f.writtenBytes:], c.off+f.writtenBytes)
		f.writtenBytes += int64(n)
		switch {
		case f.writtenBytes == int64(len(c.buf)):
			if k := len(l.dirty); k == 0 || l.dirty[k-1] != c.seg {
				l.dirty = append(l.dirty, c.seg)
			}
			f.next++
			f.writtenBytes = 0
		case n > 0 && (err == nil || errors.Is(err, io.ErrShortWrite)), errors.Is(err, syscall.EINTR):
			// The rest follows.
		case vfs.IsNoSpace(err):
			// Space was allocated, but not all file systems keep that promise. The
			// batch, and all replies that depend on it, wait for space.
			if !l.blocked.Swap(true) {
				l.log.Error("no space to write what was accepted: waiting for it", "file", c.seg.name, "error", err)
				l.waker.wake()
			}
			return false
		default:
			if err == nil {
				err = io.ErrShortWrite
			}
			l.fail(err)
			return false
		}
	}
	if l.blocked.Swap(false) {
		l.log.Info("there is space again")
	}
	l.finishFlight(time.Since(began))
	return true
}

// take makes the batch the one in flight. If there was a sync since the last mark,
// a mark record ends the batch.
func (l *Log) take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.batch.chunks) == 0 || l.err != nil {
		return false
	}
	if synced := Pos(l.synced.Load()); synced > l.lastMark {
		if seg := l.current(); seg.used+record.SmallSize <= seg.limit() && l.fits(record.SmallSize, l.room.floor()) {
			l.lastMark = synced
			b, seg := l.append(record.SmallSize)
			record.EncodeSmall(b, seg.salt, record.Mark, uint64(synced))
			l.batch.records--
		}
	}
	f := &l.flight
	f.batch, l.batch = l.batch, batch{chunks: f.chunks[:0], encoders: f.encoders}
	f.next, f.writtenBytes, f.end = 0, 0, l.tail
	l.pending.Store(0)
	return true
}

// finishFlight accounts for the batch in flight, which was written, and publishes it. With wmu held.
func (l *Log) finishFlight(took time.Duration) {
	f := &l.flight
	if l.index != nil {
		for i := range f.chunks {
			l.index.written(f.chunks[i].seg, f.chunks[i].off, f.chunks[i].buf)
		}
	}
	last := f.chunks[len(f.chunks)-1]
	end := last.seg.place(last.off + int64(len(last.buf)))
	l.mu.Lock()
	if l.err != nil { // of a sync, meanwhile: what is committed does not move any more
		l.mu.Unlock()
		return
	}
	l.written.Store(uint64(f.end))
	l.unwritten -= f.bytes
	for i := range f.chunks {
		if buf := f.chunks[i].buf; cap(buf) == chunkSize && len(l.idle) < maxIdle {
			l.idle = append(l.idle, buf[:0])
		}
		f.chunks[i] = chunk{}
	}
	sealed := len(l.sealed)
	compact := l.shouldCompact()
	l.pace()
	l.mu.Unlock()
	if compact {
		wake(l.wakeCompactor)
	}
	f.chunks = f.chunks[:0]
	if l.bodies != nil {
		l.bodies.Written(end)
	}
	if l.opts.Observer != nil {
		l.opts.Observer.Committed(f.records, f.bytes, took)
	}
	switch l.opts.Sync {
	case SyncAlways:
		return // the sync publishes it
	case SyncNever:
		if sealed > 0 {
			wake(l.wakeTrimmer)
		}
		l.dirty = l.dirty[:0]
	default:
		wake(l.wakeSyncer)
		if sealed > maxSealed {
			wake(l.hurrySyncer)
		}
	}
	l.publish(f.end)
}

func (l *Log) publish(p Pos) {
	if l.hooks.OnCommit != nil {
		l.hooks.OnCommit(p)
	}
}

// sync makes durable all that was written before the call. A log that never syncs
// does not call it.
func (l *Log) sync() {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if l.failed.Load() {
		// The sync before this one has failed, and it is no longer known which
		// segments are dirty.
		return
	}
	l.wmu.Lock()
	dirty, end := l.dirty, Pos(l.written.Load())
	l.dirty, l.cleaned = l.cleaned[:0], dirty
	l.unlockWriter()
	if len(dirty) == 0 {
		return
	}
	began := time.Now()
	l.syncing.Store(true)
	err := l.syncSegments(dirty)
	l.syncing.Store(false)
	if err != nil {
		l.fail(err)
		return
	}
	took := time.Since(began)
	l.mu.Lock()
	if l.err != nil { // of a write, meanwhile
		l.mu.Unlock()
		return
	}
	l.synced.Store(uint64(end))
	l.count.Syncs++
	l.count.LastSync = took
	trim := len(l.sealed) > 0
	l.mu.Unlock()
	if trim {
		wake(l.wakeTrimmer)
	}
	if l.opts.Observer != nil {
		l.opts.Observer.Synced(took)
	}
	if l.opts.Sync == SyncAlways {
		l.publish(end)
	}
}

func (l *Log) syncSegments(segs []*segment) error {
	named := true
	for _, seg := range segs {
		if err := seg.file.Sync(); err != nil {
			return err
		}
		named = named && seg.nameDurable.Load()
	}
	if named {
		return nil
	}
	if err := l.entries.Sync(); err != nil {
		return err
	}
	for _, seg := range segs {
		seg.nameDurable.Store(true)
	}
	return nil
}

// maxSealed is how many full segments wait for the time of the next sync: each is
// an open file until then.
const maxSealed = 16

// runSyncer is the goroutine that syncs when committed does not mean synced. It
// sleeps while there is nothing to sync.
func (l *Log) runSyncer() {
	timer := time.NewTimer(farAway)
	defer timer.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-l.wakeSyncer:
			// The first write since the last sync. It is to be on disk in time, so
			// the sync starts earlier by as long as it may take.
			interval := l.opts.Sync.Interval()
			l.mu.Lock()
			early := min(2*l.count.LastSync, interval/2)
			l.mu.Unlock()
			timer.Reset(interval - early)
			select {
			case <-l.stop:
				return
			case <-timer.C:
			case <-l.hurrySyncer:
			}
		}
		l.sync()
		if l.failed.Load() {
			return
		}
	}
}

// makeDurable commits all that was appended before the call and makes it durable, in
// so far as the log syncs at all. It reports false if that failed.
func (l *Log) makeDurable() bool {
	l.commit()
	if l.opts.Sync.Interval() > 0 && !l.failed.Load() {
		l.sync()
	}
	return !l.failed.Load() && !l.blocked.Load()
}
