package binlog

import (
	"errors"
	"io/fs"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/record"
)

// deleteRoom is what is kept free for every job, so that its delete can always
// be recorded.
const deleteRoom = record.SmallSize

// room is the account of the directory's space, in bytes. The log's mu guards
// it.
//
// Its invariant is that free is at least reserved(). Puts and updates that would break it
// are refused; a delete takes as much of free as of reserved.
type room struct {
	free int64 // allocated for records and not used, in the current segment and the spares
	used int64 // appended to all segments
	disk int64 // of all files, indexes among them
	live int64 // of the jobs' latest full records, and the latest settings
	jobs int64 // and tombstones

	// tombstones is what is reserved for those that jobs may leave.
	tombstones int64

	indexes  int64 // of the segments
	indexJob int64 // what a job takes in an index; 0 if there are none

	// margin is kept free beyond reserved. On a full disk, compaction may use one half
	// to move jobs. The other is for the log's own records: that a segment is not needed,
	// and that a server has started. Ahead is how much more the keeper allocates before it
	// is needed. Both are fractions of a segment.
	margin, ahead int64

	request   want      // by appends that were refused and not yet told to try again
	grant     want      // what they were told to try again for: it is kept for them
	waitUntil time.Time // when room.request no longer waits for compaction; zero if it does not
	full      error     // why the last file could not be allocated
	removed   bool      // a file was removed since keepRoom was last called
}

// want is room that an append was refused. Of several it is the greatest.
type want struct {
	n, keep int64 // bytes to append, and to be left over; n is 0 if nothing is wanted
	urgent  bool  // by compaction, which cannot wait for itself
}

func (w *want) add(o want) {
	w.n, w.keep, w.urgent = max(w.n, o.n), max(w.keep, o.keep), w.urgent || o.urgent
}

func (r *room) reserved() int64 { return r.jobs*deleteRoom + r.tombstones }
func (r *room) floor() int64    { return r.reserved() + r.margin }

// short reports whether it is time to allocate.
func (r *room) short() bool { return r.free < r.floor()+r.ahead }

// excess is how far the directory is above the size at which compaction starts,
// half a segment before the size that it must not exceed: twice the needed bytes
// and two segments. One of the two is for what is allocated beyond used, reserved
// and margin. What the oldest segment needs is there twice while it is moved.
func (r *room) excess(segmentSize int64, oldest *segment) int64 {
	twice := oldest.live + r.indexJob*oldest.liveCount
	return r.used + r.indexes + r.floor() + 2*r.ahead + twice/2 - (2*r.needed() + segmentSize/2)
}

// over is how far the directory is above the size that it must not exceed.
func (r *room) over(segmentSize int64) int64 {
	return r.disk - 2*r.needed() - 2*segmentSize
}

// needed is the size of a directory that is compacted as far as can be. What is reserved
// for tombstones counts because compaction cannot free it: without it, small jobs that may
// leave tombstones would keep compaction busy for ever.
func (r *room) needed() int64 { return r.live + r.tombstones + r.jobs*r.indexJob }

// Bytes at the end of each segment that may be too few for a record that must always fit.
const (
	deleteWaste    = 8
	tombstoneWaste = journal.MaxTombstone - 8
)

// tombstoneMargin is how many free bytes, beyond the reserve, are needed to admit a job whose
// tombstone takes n. With mu held.
func (l *Log) tombstoneMargin(n int64) int64 {
	if n > 0 && l.room.tombstones == 0 {
		n += (tombstoneWaste - deleteWaste) * int64(len(l.spares)+1)
	}
	return n
}

// fits reports whether n bytes can be appended now with keep bytes left over. With
// mu held.
func (l *Log) fits(n, keep int64) bool {
	seg, free := l.current(), l.room.free
	if seg.used+n > seg.limit() {
		if len(l.spares) == 0 || n > capacity(l.spares[0].size) {
			return false
		}
		free -= seg.limit() - seg.used
	}
	if keep == 0 {
		return true
	}
	return free-n >= keep+l.waste(len(l.spares))
}

// waste is how many free bytes, at the ends of the current segment and of that many spares,
// may be too few for a record that must always fit. With mu held.
func (l *Log) waste(spares int) int64 {
	n := int64(deleteWaste)
	if l.room.tombstones > 0 {
		n = tombstoneWaste
	}
	return n * int64(spares+1)
}

// The keeper allocates segments before they are needed, so that appends are seldom
// refused, and removes spare ones that are not needed any more. What a refused append
// needs is in room.request until the keeper has told it to try again.

// retryFull is how often a full disk is asked again.
const retryFull = 200 * time.Millisecond

func (l *Log) runKeeper() {
	retry := time.NewTimer(farAway)
	defer retry.Stop()
	warned := false // the operator knows that the disk is full
	for {
		again := false // the disk was full, but it is time to ask again
		select {
		case <-l.stop:
			l.mu.Lock()
			if l.room.request.n > 0 {
				l.tellRoom()
			}
			l.mu.Unlock()
			return
		case <-retry.C:
			again = true
		case <-l.wakeKeeper:
		}
		wait, grown, err := l.keepRoom(again)
		if wait > 0 {
			retry.Reset(wait)
		}
		switch {
		case err != nil && !warned:
			l.log.Warn("no further segment can be allocated: new jobs are refused until one can", "error", err)
			warned = true
		case err == nil && grown && warned:
			l.log.Info("segments can be allocated again")
			warned = false
		}
	}
}

// keepRoom allocates until there is enough room, or gives some back. It returns
// after how long it is to be called again, or 0 if that can wait for a wake, whether
// it has allocated, and why it could allocate no more. When the disk is full it
// does not try again before that time, or before a segment was removed.
func (l *Log) keepRoom(again bool) (wait time.Duration, grown bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.room
	again = again || r.removed
	r.removed = false
	for {
		w := r.request
		if w.n > 0 && (l.err != nil || l.closing) {
			l.tellRoom()
			continue
		}
		if w.n > 0 && l.fits(w.n, w.keep) {
			r.grant.add(w)
			l.tellRoom()
			continue
		}
		if w.n == 0 && !r.short() {
			if again {
				r.full = nil // the next that finds no room asks the disk
			}
			break
		}
		if r.full != nil && !again {
			return 0, grown, nil
		}
		if l.slow.Load() && !w.urgent {
			// Compaction will remove a segment first, and then wake us, unless it fails.
			if w.n == 0 {
				return retryFull, grown, nil
			}
			if r.waitUntil.IsZero() {
				r.waitUntil = time.Now().Add(maxCompactionWait)
			}
			if wait := time.Until(r.waitUntil); wait > 0 {
				return wait, grown, nil
			}
		}
		r.waitUntil = time.Time{}
		if err := l.allocate(w.n); err != nil {
			r.full = err
			l.count.SpaceErrors++
			if r.request.n > 0 {
				l.tellRoom()
			}
			return retryFull, grown, err
		}
		r.full, grown = nil, true
	}
	l.removeSpares()
	return 0, grown, nil
}

// tellRoom tells those that were refused that it makes sense to try again. With
// mu held, which it releases meanwhile.
func (l *Log) tellRoom() {
	l.room.request = want{}
	l.mu.Unlock()
	defer l.mu.Lock()
	wake(l.roomTold)
	if l.hooks.OnRoom != nil {
		l.hooks.OnRoom()
	}
}

// removeSpares removes the last spare segments while there is more room than is
// needed soon. What was granted and not taken yet stays, unless others have used
// it up. With mu held, which it releases while it works.
func (l *Log) removeSpares() {
	r := &l.room
	for len(l.spares) > 0 {
		if g := r.grant; g.n > 0 && l.fits(g.n, g.keep) {
			return
		}
		r.grant = want{}
		n := len(l.spares)
		seg := l.spares[n-1]
		if r.free-capacity(seg.size) < r.floor()+2*r.ahead+l.waste(n-1) {
			return
		}
		l.spares = l.spares[:n-1]
		l.nextIndex--
		r.free -= capacity(seg.size)
		r.disk -= seg.size
		l.pace()
		l.mu.Unlock()
		l.removeSpare(seg)
		l.mu.Lock()
	}
}

// allocate makes a spare segment, or a larger one of the first spare if that is
// too small for n bytes. With mu held, which it releases while it works.
func (l *Log) allocate(n int64) error {
	size := max(l.opts.SegmentSize, (n+record.HeaderSize+record.SmallSize+4095)&^4095)
	if len(l.spares) > 0 && n > capacity(l.spares[0].size) {
		seg := l.spares[0]
		l.mu.Unlock()
		// Appends may fill it meanwhile, but with trimMu held it is not closed.
		l.trimMu.Lock()
		defer l.trimMu.Unlock()
		var err error
		file := seg.file
		if file != nil {
			err = file.Allocate(size)
		}
		l.mu.Lock()
		if err != nil || file == nil {
			return err
		}
		if !seg.sealed {
			l.room.free += size - seg.size
		}
		l.room.disk += size - seg.size
		seg.size = size
		return nil
	}
	index := l.nextIndex
	if index == 0 {
		return errors.New("all numbers of segments are used up")
	}
	l.nextIndex++
	l.mu.Unlock()
	seg, err := l.create(index, size)
	l.mu.Lock()
	if err != nil {
		l.nextIndex--
		return err
	}
	l.addSpare(seg)
	l.count.SegmentsCreated++
	l.pace()
	wake(l.wakeTrimmer)
	return nil
}

// addSpare takes a segment that is allocated. With mu held.
func (l *Log) addSpare(seg *segment) {
	l.spares = append(l.spares, seg)
	l.room.free += capacity(seg.size)
	l.room.disk += seg.size
}

// create makes a segment's file, which is durable no sooner than the first sync
// of the segment.
func (l *Log) create(index uint32, size int64) (*segment, error) {
	seg := &segment{Header: record.Header{Index: index}, name: l.path(index), size: size}
	file, err := l.fs.Create(seg.name, size)
	if errors.Is(err, fs.ErrExist) {
		// A spare one that could not be removed.
		if err := l.fs.Remove(seg.name); err != nil {
			return nil, err
		}
		file, err = l.fs.Create(seg.name, size)
	}
	if err != nil {
		return nil, err
	}
	seg.file = file
	return seg, nil
}

// removeSpare removes a spare segment.
func (l *Log) removeSpare(seg *segment) {
	if err := errors.Join(seg.file.Close(), l.fs.Remove(seg.name)); err != nil {
		l.log.Warn("a spare segment cannot be removed", "error", err)
	}
}
