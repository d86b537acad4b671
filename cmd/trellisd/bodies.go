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
	// evictPause is how long nobody looks at how much memory bodies take. In that time they may grow beyond the
	// limit by as much as clients can put.
	evictPause = 10 * time.Millisecond
	// evictIdle is the same while they take much less than they may.
	evictIdle = 100 * time.Millisecond
)

// evictor lets bodies leave memory while they take more than --body-memory says.
type evictor struct {
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
		for pause := time.NewTimer(0); ; pause.Reset(e.evict()) {
			select {
			case <-done:
				return
			case <-pause.C:
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// evict returns after how long it is to be called again.
func (e *evictor) evict() time.Duration {
	freed, more := e.eng.Evict(evictLook)
	e.evicted.Add(freed)
	switch memory := e.eng.BodyMemory(); {
	case more:
		return 0
	case memory > e.limit/8*7:
		e.log.Hurry() // what has to leave is not durable yet
		return evictPause
	case memory < e.limit/2:
		return evictIdle
	}
	return evictPause
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
