package main

import (
	"log/slog"
	"time"

	"trellis/engine"
)

// newClock returns a clock that shows 0 at start, which is now, and goes by the
// system's monotonic clock: setting the time of day does not move it. Any
// goroutine may read it.
func newClock() (start time.Time, now func() engine.Time) {
	start = time.Now()
	return start, func() engine.Time { return engine.Time(time.Since(start)) }
}

// A wallClock notices that somebody has set the clock on the wall, so that what is
// recorded goes by its new time.
type wallClock struct {
	now   func() engine.Time
	wall  func() time.Time
	set   func(start time.Time) // the engine's ClockSet
	log   *slog.Logger
	start time.Time // the wall clock at Time 0, as the engine was last told
}

const (
	// wallClockInterval is the time between two looks at the clock.
	wallClockInterval = time.Second
	// wallClockSlack is how far the clock may have moved before it counts as set.
	wallClockSlack = time.Second
)

// watchWallClock looks at the clock until stop is called.
func watchWallClock(eng *engine.Engine, start time.Time, now func() engine.Time, log *slog.Logger) (stop func()) {
	c := &wallClock{now: now, wall: time.Now, set: eng.ClockSet, log: log, start: start}
	ticker := time.NewTicker(wallClockInterval)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				c.look()
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(done)
		<-ended
	}
}

func (c *wallClock) look() {
	// Without Round the difference would be taken by the monotonic clock.
	start := c.wall().Round(0).Add(-time.Duration(c.now()))
	moved := start.Sub(c.start.Round(0))
	if moved.Abs() <= wallClockSlack {
		return
	}
	c.start = start
	c.set(start)
	c.log.Info("the wall clock has been set: deadlines stay where they are", "by", moved)
}
