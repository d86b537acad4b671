package binlog

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"
)

// The keeper allocates segments before they are needed, so that appends need not
// wait for the disk to find room, and gives back what is not needed any more.

// retryFull is how often a full disk is asked again.
const retryFull = 200 * time.Millisecond

func (l *Log) runKeeper() {
	defer l.workers.Done()
	retry := time.NewTimer(farAway)
	defer retry.Stop()
	told := false // the operator knows that the disk is full
	for {
		again := false // the disk was full, but it is time to ask again
		select {
		case <-l.stop:
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
		case err != nil && !told:
			l.log.Warn("no further segment can be allocated: new jobs are refused until one can", "error", err)
			told = true
		case err == nil && grown && told:
			l.log.Info("segments can be allocated again")
			told = false
		}
	}
}

// keepRoom allocates until there is enough room, or gives some back. It returns
// how long it is to be called again after, or 0, whether it has allocated, and
// why it could do so no further. When the disk is full it allocates no more until
// that time, or until a segment was removed.
func (l *Log) keepRoom(again bool) (wait time.Duration, grown bool, err error) {
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
			if again {
				r.full = nil // the next that finds no room asks the disk
			}
			break
		}
		if r.full != nil && !again {
			return 0, grown, nil
		}
		if l.slow.Load() && !r.hasty {
			// Compaction will free a segment first, and then wake us, unless it fails.
			if w.n == 0 {
				return retryFull, grown, nil
			}
			if r.patience.IsZero() {
				r.patience = time.Now().Add(maxGiveWay)
			}
			if wait := time.Until(r.patience); wait > 0 {
				return wait, grown, nil
			}
		}
		r.patience, r.hasty = time.Time{}, false
		if err := l.allocate(w.n); err != nil {
			r.full = err
			l.count.spaceErrors++
			r.wanted.n, r.wanted.keep = 0, 0
			l.spaceFree.Broadcast()
			return retryFull, grown, err
		}
		r.full, grown = nil, true
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
	return 0, grown, nil
}

// allocate makes a spare segment, or a larger one of the first spare if that is
// too small for n bytes. With mu held, which it releases while it works.
func (l *Log) allocate(n int64) error {
	size := max(l.opts.SegmentSize, (n+headerSize+smallSize+4095)&^4095)
	if len(l.spares) > 0 && n > capacity(l.spares[0].size) {
		seg := l.spares[0]
		l.mu.Unlock()
		// It may be used up meanwhile, but not be trimmed.
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
	l.spares = append(l.spares, seg)
	l.room.free += capacity(size)
	l.room.disk += size
	l.count.created++
	l.pace()
	wake(l.wakeTrimmer)
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

// discard removes a spare segment.
func (l *Log) discard(seg *segment) {
	if err := errors.Join(seg.file.Close(), l.fs.Remove(seg.name)); err != nil {
		l.log.Warn("a spare segment cannot be removed", "error", err)
	}
}
