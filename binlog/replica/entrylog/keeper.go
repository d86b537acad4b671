package entrylog

import (
	"errors"
	"io/fs"
	"sync"

	"trellis/binlog/vfs"
)

// keeper makes the next segment's file before it is needed, and removes the files
// of segments that are needed no more, on a goroutine of its own.
type keeper struct {
	log    *Log
	waker  chan struct{}
	halt   chan struct{}
	worker sync.WaitGroup

	// making is held while the next file is being made.
	making sync.Mutex
	next   uint32   // index of the next file; making guards it
	spare  *segment // nil if there is none; making guards it

	mu       sync.Mutex
	obsolete []*segment // to be removed, oldest first; mu guards it
}

func (k *keeper) start(l *Log) {
	k.log = l
	k.waker = make(chan struct{}, 1)
	k.halt = make(chan struct{})
	k.next = l.current.index + 1
	k.worker.Go(k.run)
	k.wake()
}

func (k *keeper) wake() {
	select {
	case k.waker <- struct{}{}:
	default:
	}
}

// stop waits for the goroutine to end.
func (k *keeper) stop() {
	close(k.halt)
	k.worker.Wait()
}

// files are those that are still open when the goroutine has ended.
func (k *keeper) files() []*segment {
	if k.spare == nil {
		return k.obsolete
	}
	return append(k.obsolete, k.spare)
}

func (k *keeper) run() {
	for {
		select {
		case <-k.halt:
			return
		case <-k.waker:
		}
		k.making.Lock()
		if k.spare == nil {
			// If this fails for want of space, the writer will try again when it needs
			// the file.
			if err := k.make(k.log.opts.SegmentSize); err != nil {
				k.log.refuse("make the next segment", err)
			}
		}
		k.making.Unlock()
		if err := k.removeAll(); err != nil {
			k.log.refuse("remove a segment", err)
		}
	}
}

// make makes the next file. With making held.
func (k *keeper) make(size int64) error {
	s, err := k.log.create(k.next, size)
	if err != nil {
		return err
	}
	k.spare = s
	k.next++
	return nil
}

// take returns the next file, with room for that many bytes. It waits if the file
// is just being made. The file stays the next one until begun is called.
func (k *keeper) take(size int64) (*segment, error) {
	k.making.Lock()
	defer k.making.Unlock()
	if k.spare == nil {
		if err := k.make(max(size, k.log.opts.SegmentSize)); err != nil {
			return nil, err
		}
	}
	s := k.spare
	if s.size < size {
		if err := s.file.Allocate(size); err != nil {
			return nil, err
		}
		s.size = size
	}
	return s, nil
}

// begun tells that the next file is in use and that another one is wanted.
func (k *keeper) begun() {
	k.making.Lock()
	k.spare = nil
	k.making.Unlock()
	k.wake()
}

// remove leaves files to the keeper, which removes the oldest first.
func (k *keeper) remove(s []*segment) {
	k.mu.Lock()
	k.obsolete = append(k.obsolete, s...)
	k.mu.Unlock()
	k.wake()
}

// removeAll removes what is obsolete. The directory is synced after each file, so
// that a power cut leaves no gap in the row of files.
func (k *keeper) removeAll() error {
	for {
		k.mu.Lock()
		if len(k.obsolete) == 0 {
			k.mu.Unlock()
			return nil
		}
		s := k.obsolete[0]
		k.mu.Unlock()
		if err := k.log.fs.Remove(s.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := vfs.SyncDir(k.log.fs, k.log.dir); err != nil {
			return k.log.fail("sync the directory", err)
		}
		k.mu.Lock()
		k.obsolete = k.obsolete[1:]
		k.mu.Unlock()
		if err := s.file.Close(); err != nil {
			return err
		}
	}
}
