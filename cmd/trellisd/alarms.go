package main

import (
	"math"
	"time"

	"trellis/engine"
)

// alarms wakes an engine's shards at their deadlines: one timer a shard, which
// sleeps until the soonest of them.
type alarms struct {
	now    func() engine.Time
	timers []*time.Timer // by shard; written by start only
}

// start makes the timers. The engine must not have executed any command yet.
func (a *alarms) start(eng *engine.Engine) {
	for shard := range eng.NumShards() {
		t := time.AfterFunc(math.MaxInt64, func() { eng.Advance(shard, a.now()) })
		t.Stop()
		a.timers = append(a.timers, t)
	}
}

// set is the engine's Alarm. The engine calls it with the shard's lock held, so
// of two calls for a shard the later one has the valid deadline. A timer that is
// going off meanwhile does no harm: an Advance too many finds nothing to do and
// asks for the next deadline again.
func (a *alarms) set(shard int, at engine.Time) {
	a.timers[shard].Reset(time.Duration(at - a.now()))
}

// stop keeps timers from going off that have not yet.
func (a *alarms) stop() {
	for _, t := range a.timers {
		t.Stop()
	}
}
