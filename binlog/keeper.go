package binlog

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"
)

// The keeper allocates segments before they are needed, so that appends never
// wait for the disk to find room, gives back what is not needed any more, and
// trims segments that are full.

// retryFull is how often a full disk is asked again.
const retryFull = 200 * time.Millisecond

func (l *Log) runKeeper() {
	defer l.workers.Done()
	retry := time.NewTimer(farAway)
	defer retry.Stop()
	for {
		again := false // the disk was full, but it is time to ask again
		select {
		case <-l.stop:
			return
		case <-retry.C:
			again = true
		case <-l.wakeKeeper:
		}
		l.trim()
		if wait := l.keepRoom(again); wait > 0 {
			retry.Reset(wait)
		}
		l.nameSpares()
	}
}

// keepRoom allocates until there is enough room, or gives some back. It returns
// how long it is to be called again after, or 0. When the disk is full it
// allocates no more until then, or until a segment was removed.
func (l *Log) keepRoom(again bool) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.room
	again = again || r.removed
	r.removed = false
	for {
		w := r.wanted
		if w.n > 0 && l.fits(w.n, w.keep) {
			r.wanted.n, r.wanted.keep = 0, 0
			l.spaceFree.Broadcast()
			continue
		}
		if w.n == 0 && !r.short() {
			break
		}
		if r.full != nil && !again {
			return 0
		}
		if l.slow.Load() && !r.hasty {
			// Compaction will free a segment first, and then wake us.
			if w.n == 0 {
				return 0
			}
			if r.patience.IsZero() {
				r.patience = time.Now().Add(maxGiveWay)
			}
			if wait := time.Until(r.patience); wait > 0 {
				return wait
			}
		}
		r.patience, r.hasty = time.Time{}, false
		if err := l.allocate(w.n); err != nil {
			if r.full == nil {
				l.log.Warn("no further segment can be allocated: new jobs are refused until one can", "error", err)
			}
			r.full = err
			l.count.spaceErrors++
			r.wanted.n, r.wanted.keep = 0, 0
			l.spaceFree.Broadcast()
			return retryFull
		}
		if r.full != nil {
			l.log.Info("segments can be allocated again")
			r.full = nil
		}
	}
	for len(l.spares) > 0 && r.waiters == 0 {
		n := len(l.spares)
		seg := l.spares[n-1]
		if r.free-capacity(seg.size) < r.floor()+2*r.ahead {
			break
		}
		l.spares = l.spares[:n-1]
		l.nextIndex--
		r.free -= capacity(seg.size)
		r.disk -= seg.size
		l.pace()
		l.mu.Unlock()
		l.discard(seg)
		l.mu.Lock()
	}
	return 0
}

// allocate makes a spare segment, or a larger one of the first spare if that is
// too small for n bytes. With mu held, which it releases while it works.
func (l *Log) allocate(n int64) error {
	size := max(l.opts.SegmentSize, (n+headerSize+smallSize+4095)&^4095)
	if len(l.spares) > 0 && n > capacity(l.spares[0].size) {
		seg := l.spares[0]
		l.mu.Unlock()
		err := seg.file.Allocate(size)
		l.mu.Lock()
		if err != nil {
			return err
		}
		if !seg.sealed { // or else it was used up meanwhile, and will be trimmed
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
	l.spares = append(l.spares, seg)
	l.room.free += capacity(size)
	l.room.disk += size
	l.count.created++
	l.pace()
	return nil
}

// create makes a segment's file, which is durable no sooner than the first sync
// of the segment.
func (l *Log) create(index uint32, size int64) (*segment, error) {
	seg := &segment{name: filepath.Join(l.dir, segmentName(index)), size: size}
	seg.index = index
	seg.start = checksumStart(l.seed, index)
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

// nameSpares makes the names of new segments durable before a commit has to wait
// for that.
func (l *Log) nameSpares() {
	l.mu.Lock()
	var fresh []*segment
	for _, seg := range l.spares {
		if !seg.named.Load() {
			fresh = append(fresh, seg)
		}
	}
	l.mu.Unlock()
	if len(fresh) == 0 || l.opts.SyncInterval < 0 {
		return
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		l.fail(err) // as for the sync of a file
		return
	}
	for _, seg := range fresh {
		seg.named.Store(true)
	}
}

// discard removes a spare segment.
func (l *Log) discard(seg *segment) {
	if err := errors.Join(seg.file.Close(), l.fs.Remove(seg.name)); err != nil {
		l.log.Warn("a spare segment cannot be removed", "error", err)
	}
}

// trim closes the segments that are sealed and durable, and gives back what they
// did not use.
func (l *Log) trim() {
	l.trimMu.Lock()
	defer l.trimMu.Unlock()
	for {
		l.mu.Lock()
		if len(l.sealed) == 0 || l.sealed[0].end() > l.durablePos() {
			l.mu.Unlock()
			return
		}
		seg := l.sealed[0]
		l.sealed = l.sealed[1:]
		file := seg.file
		seg.file = nil
		l.mu.Unlock()

		err := file.Truncate(seg.used)
		if err := errors.Join(err, file.Close()); err != nil {
			l.log.Warn("a full segment cannot be trimmed", "file", seg.name, "error", err)
		}
		if err == nil {
			l.mu.Lock()
			l.room.disk -= seg.size - seg.used
			seg.size = seg.used
			l.pace()
			l.mu.Unlock()
		}
	}
}
