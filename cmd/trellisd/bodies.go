package main

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"trellis/binlog"
	"trellis/cmd/trellisd/internal/options"
	"trellis/engine"
)

const (
	// evictLook is how many bodies are looked at before the goroutine looks whether it is to end.
	evictLook = 1 << 14
	// evictPause is waited before bodies are tried again that could not leave memory: they are not durable yet, or
	// clients are being sent them.
	evictPause = 10 * time.Millisecond
)

// evictor lets bodies leave memory while they take more than --body-memory says. It sleeps until the engine rings, or
// for a while if they still take too much.
type evictor struct {
	bell    chan struct{} // of one place
	eng     *engine.Engine
	log     *binlog.Log
	limit   int64
	evicted atomic.Int64 // bytes
}

// evictBodies has bodies leave memory until stop is called.
func evictBodies(e *evictor) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			bell, again := e.bell, (<-chan time.Time)(nil)
			if pause, calm := e.evict(); !calm {
				bell, again = nil, time.After(pause)
			}
			select {
			case <-done:
				return
			case <-bell:
			case <-again:
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// ring has the evictor look. It may be called from any goroutine.
func (e *evictor) ring() {
	select {
	case e.bell <- struct{}{}:
	default:
	}
}

// evict returns after how long it is to be called again; or calm: not before the bell rings.
func (e *evictor) evict() (pause time.Duration, calm bool) {
	freed, more := e.eng.Evict(evictLook)
	e.evicted.Add(freed)
	switch {
	case more:
		return 0, false
	case e.eng.BodyMemory() <= e.limit/8*7:
		return 0, true
	}
	e.log.Hurry() // what has to leave may not be durable yet
	return evictPause, false
}

// largeSegment is the size of segments on large disks: bodies are read back from few files.
const largeSegment = 64 << 20

// segmentSize is the size of the binlog's segments on a disk of so many bytes if -s does not say it and bodies leave
// memory. A full disk gets room again by whole segments, so that none is more than a 32th of it.
func segmentSize(disk int64) int64 {
	return max(binlog.DefaultSegmentSize, min(largeSegment, disk/32))
}

// chooseSegmentSize sets what -s does not say, where bodies leave memory.
func chooseSegmentSize(opt *options.Options) {
	if opt.BodyMemory == 0 || opt.SegmentSize > 0 {
		return
	}
	var st unix.Statfs_t
	if unix.Statfs(opt.Binlog, &st) != nil {
		return // whoever opens the binlog says what is wrong
	}
	opt.SegmentSize = segmentSize(int64(st.Blocks) * int64(st.Bsize))
}
