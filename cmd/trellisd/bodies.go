package main

import (
	"sync/atomic"
	"time"

	"trellis/binlog"
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
