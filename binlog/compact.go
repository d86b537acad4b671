package binlog

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/record"
)

// Compaction removes segments from the old end only. Whatever a job's records
// are, its delete record comes after them, so that none of them can outlive it;
// and of a live job nothing is needed but its latest full record and what
// follows that. The same holds for settings, of which the log itself knows the latest.
// A segment that has no job's latest full record, and no latest setting, may go as
// soon as it is the oldest.
//
// Of a damaged segment the owner is asked what it still has there, and moves what it has in
// memory. A job of which nobody has the body any more keeps the segment, and so all behind it:
// these have the deletes of what is in the damaged one, and the last states of what stays there.
// They could go only if all of that were written once more, behind every later segment, for as
// long as the damaged one stays; and a log whose segments do not follow each other is a damaged
// one, for earlier programs too. So whoever deletes these jobs, which are good for nothing else,
// lets all go on.
//
// When the directory is nearly twice as large as the live records, half of what
// it holds is garbage, and going once through all of it moves at most one byte
// for each byte that it removes. So for every workload no more is written for
// compaction than by the clients.

const (
	// sliceRecords is how many records are looked at before other goroutines get
	// their turn.
	sliceRecords = 64

	// slicePause is waited after each slice, unless the directory is too large.
	slicePause = 200 * time.Microsecond

	// retryCompaction is how long compaction that failed waits.
	retryCompaction = time.Second
)

func (l *Log) runCompactor() {
	retry := time.NewTimer(farAway)
	defer retry.Stop()
	var sc record.Scanner
	for {
		select {
		case <-l.stopping:
			return
		case <-retry.C:
		case <-l.wakeCompactor:
		}
		err := l.compact(&sc)
		l.mu.Lock()
		l.stalled = err != nil
		l.pace()
		l.mu.Unlock()
		if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrFailed) {
			if !errors.Is(err, ErrNoSpace) && !errors.Is(err, ErrBusy) {
				l.log.Error("compaction of the log", "error", err)
			}
			retry.Reset(retryCompaction)
		}
	}
}

// compact removes the oldest segments until the directory is small enough.
func (l *Log) compact(sc *record.Scanner) error {
	if len(l.dropped) > 0 {
		if err := l.removeFiles(); err != nil {
			return err
		}
	}
	for {
		seg := l.victim()
		if seg == nil {
			return nil
		}
		if err := l.evacuate(seg, sc); err != nil {
			return err
		}
		if err := l.removeEmpty(); err != nil {
			return err
		}
	}
}

// victim is the oldest segment if it is to be removed now.
func (l *Log) victim() *segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seg := l.segs[0]; l.err == nil && !l.closing && l.shouldCompact() && seg.end() <= Pos(l.written.Load()) {
		return seg
	}
	return nil
}

// shouldCompact reports whether the oldest segment is to be removed. With mu held.
func (l *Log) shouldCompact() bool {
	seg := l.segs[0]
	switch {
	case !seg.sealed:
		return false
	case seg.liveCount == 0:
		return true
	case seg.stuck || l.hooks.Migrate == nil:
		return false
	}
	return l.slow.Load() || l.room.excess(l.opts.SegmentSize, seg) > 0
}

// evacuate has the owner move all jobs out of a segment, and moves the settings.
func (l *Log) evacuate(seg *segment, sc *record.Scanner) error {
	if l.kept(seg) == 0 {
		return nil
	}
	var damage error
	seen := 0
	for b, gap := range l.scan(sc, seg) {
		if seen++; seen%sliceRecords == 0 {
			if l.kept(seg) == 0 {
				return nil
			}
			if err := l.yield(); err != nil {
				return err
			}
		}
		if gap != nil {
			if errors.Is(gap.Err, journal.ErrHangs) || errors.Is(gap.Err, ErrClosed) {
				return fmt.Errorf("read %s: %w", seg.name, gap.Err)
			}
			damage = &DamageError{File: seg.name, Offset: gap.Offset, What: gap.Err.Error()}
			continue
		}
		switch record.KindOf(b) {
		case record.Full:
			id, place, body := record.Number(b), seg.place(sc.Offset()-int64(len(b))), record.Body(b)
			if err := l.inRoom(func() error { return l.hooks.Migrate(id, place, body) }); err != nil {
				return fmt.Errorf("move job %d: %w", id, err)
			}
		case record.Setting, record.Policy:
			tube := record.DecodeSetting(b).Tube
			if err := l.inRoom(func() error { return l.migrateSetting(tube, seg.Index) }); err != nil {
				return fmt.Errorf("move a setting: %w", err)
			}
		}
	}
	if err := sc.Err(); err != nil {
		return err
	}
	var left []uint64
	if damage != nil {
		l.log.Error("compaction has met damage", "error", damage)
		var err error
		if left, err = l.rescue(seg); err != nil {
			return err
		}
	}
	n := l.kept(seg)
	switch {
	case n == 0:
		return nil
	case int64(len(left)) < n:
		// They may have been recorded a moment ago, so that the owner does not find them yet.
		damage = errors.New("the owner does not know them yet")
	default:
		l.mu.Lock()
		seg.stuck = true
		l.mu.Unlock()
		l.log.Error("a damaged segment stays until these jobs are deleted, as far as they are there still",
			"file", seg.name, "jobs", left[:min(len(left), maxNamed)], "all", len(left))
	}
	return fmt.Errorf("%s cannot be freed: %d jobs or settings in it were not found: %w", seg.name, n, damage)
}

// maxNamed is how many jobs a line of the log names.
const maxNamed = 100

// rescue has the owner move the jobs out of a damaged segment that it has in memory, and moves the settings. It returns
// the other jobs.
func (l *Log) rescue(seg *segment) (left []uint64, err error) {
	l.mu.Lock()
	tubes := slices.Collect(maps.Keys(l.settings))
	l.mu.Unlock()
	for _, tube := range tubes {
		if err := l.inRoom(func() error { return l.migrateSetting(tube, seg.Index) }); err != nil {
			return nil, fmt.Errorf("move a setting: %w", err)
		}
	}
	if l.hooks.Jobs == nil {
		return nil, nil
	}
	for i, id := range l.hooks.Jobs(seg.Index) {
		if i%sliceRecords == sliceRecords-1 {
			if err := l.yield(); err != nil {
				return nil, err
			}
		}
		unread := journal.Place{Segment: seg.Index}
		if err := l.inRoom(func() error { return l.hooks.Migrate(id, unread, nil) }); err != nil {
			return nil, fmt.Errorf("move job %d: %w", id, err)
		}
	}
	return l.hooks.Jobs(seg.Index), nil
}

// scan goes through a segment. Where bodies are read, it waits for its turns among them.
func (l *Log) scan(sc *record.Scanner, seg *segment) iter.Seq2[[]byte, *record.Gap] {
	if l.bodies == nil {
		return sc.File(l.fs, seg.name, &seg.Header, seg.used)
	}
	sc.Reset(l.bodies.Range(seg.Index), &seg.Header, seg.used)
	return sc.Records()
}

// inRoom does an append again for as long as there is no room, each time when it makes sense.
func (l *Log) inRoom(do func() error) error {
	for {
		if err := do(); !errors.Is(err, ErrRoom) {
			return err
		}
		select {
		case <-l.stopping:
			return ErrClosed
		case <-l.roomTold:
		}
	}
}

// yield commits what was moved and lets other goroutines run. While the directory is too
// large it does not pause: commits wait for the compactor then, so clients would wait for
// its pauses too.
func (l *Log) yield() error {
	l.Flush()
	if l.slow.Load() {
		runtime.Gosched()
	} else {
		time.Sleep(slicePause)
	}
	select {
	case <-l.stopping:
		return ErrClosed
	default:
		return nil
	}
}

func (l *Log) kept(seg *segment) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return seg.liveCount
}

// removeEmpty removes the oldest segments that have no jobs. That they go is a record
// of its own, which is durable, as all moved jobs are, before the first file
// goes. After a crash it tells that the other files are garbage.
func (l *Log) removeEmpty() error {
	if err := l.inRoom(l.recordDrop); err != nil || len(l.dropped) == 0 {
		return err
	}
	return l.removeFiles()
}

// recordDrop takes the oldest segments that have no jobs out of the log, to be
// removed.
func (l *Log) recordDrop() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.segs)-1 && l.segs[n].liveCount == 0 && l.segs[n].sealed && l.segs[n].end() <= Pos(l.written.Load()) {
		n++
	}
	if n == 0 {
		return nil
	}
	if err := l.admit(record.SmallSize, l.room.reserved(), true); err != nil {
		return err
	}
	for _, s := range l.segs[:n] {
		l.room.used -= s.used
		l.room.indexes -= s.indexed
		s.dropped = true
	}
	l.dropped = append(l.dropped, l.segs[:n]...)
	l.segs = l.segs[n:]
	b, seg := l.append(record.SmallSize)
	record.EncodeSmall(b, seg.salt, record.Drop, uint64(l.segs[0].Index))
	return nil
}

// removeFiles removes the files of segments that are not needed.
func (l *Log) removeFiles() error {
	if !l.makeDurable() {
		if l.failed.Load() {
			return ErrFailed
		}
		return ErrNoSpace // a write waits for it
	}
	l.trim() // closes those that the trimmer has not come to yet
	var err error
	kept := l.dropped[:0]
	removed := int64(0)
	for _, s := range l.dropped {
		if e := l.fs.Remove(s.name); e != nil {
			err = errors.Join(err, e)
			kept = append(kept, s)
			continue
		}
		removed += s.size
		if l.index != nil {
			l.index.post(indexTask{seg: s, none: true})
		}
		if l.bodies != nil {
			l.bodies.Forget(s.Index)
		}
	}
	n := len(l.dropped) - len(kept)
	clear(l.dropped[len(kept):])
	l.dropped = kept
	if l.opts.Sync != SyncNever {
		if e := l.entries.Sync(); e != nil {
			l.fail(e) // new segments' names may be lost
			return ErrFailed
		}
	}
	l.mu.Lock()
	l.room.disk -= removed
	l.room.removed = true
	l.count.SegmentsRemoved += uint64(n)
	l.pace()
	l.mu.Unlock()
	wake(l.wakeKeeper)
	if err != nil {
		return fmt.Errorf("remove segments: %w", err)
	}
	return nil
}
