package load

import (
	"trellis/bench"
	"trellis/bench/internal/host"
)

const longestTail = int64(bench.LongestTail)

// run drives the connections until the scenario ends.
func (w *worker) run(window times) (err error) {
	w.window = window
	now := w.now()
	w.lastReply = now
	w.nextDue = float64(now)
	w.budget = -1
	for i := range w.conns {
		c := &w.conns[i]
		switch c.role {
		case roleUnits:
			for range w.unitsPerConn {
				w.pushFree(c)
			}
		case roleConsumer:
			w.drv.join(w, c, now)
		case roleWaiting:
			w.sendReserve(c, now, now, 0)
		}
		w.flush(c)
	}
	for {
		now = w.now()
		w.advance(now)
		finished := w.finished()
		if finished && (!w.consumes || w.backlog() == 0) {
			break
		}
		if w.abort.Load() {
			err = errAborted
			break
		}
		if w.violations.total.Load() > violationLimit {
			err = bench.ErrBroken
			break
		}
		if !finished && w.active == 0 {
			w.lastReply = now // nothing is owed
		} else if w.silent(now) {
			w.reportMissing()
			break
		}
		w.dispatch(now)
		w.reopen()
		if wait := w.sleep(now); wait > 0 {
			w.handle(w.poll.wait(wait))
		} else {
			w.handleAtOnce()
		}
		w.publish()
	}
	if w.counting {
		w.endCounting(max(w.lastReply, w.startedAt))
	}
	if w.recording {
		w.recording = false
		w.rec.flush()
		if w.cfg.Log {
			w.rec.cut(w.now())
		}
	}
	w.publish()
	return err
}

// silent reports whether nothing has come for the reply timeout. If this program stood still for so long, what has come
// meanwhile is there to be read.
func (w *worker) silent(now int64) bool {
	if now-w.lastReply <= int64(w.cfg.ReplyTimeout) {
		return false
	}
	w.handle(w.poll.wait(0))
	return now-w.lastReply > int64(w.cfg.ReplyTimeout)
}

// handleAtOnce serves the events that are there already. When there are none, the time that it took counts as spinning.
func (w *worker) handleAtOnce() {
	from := w.now()
	if n := w.poll.wait(0); n > 0 {
		w.handle(n)
	} else if w.counting {
		w.spun += w.now() - from
	}
}

// advance begins recording, ends counting and stops the load when the time for each has come.
func (w *worker) advance(now int64) {
	if !w.recording && w.endedAt == 0 && now >= w.window.record {
		w.recording, w.counting = true, true
		w.rec.cutAt = now
		w.startedAt, w.busy = now, -threadCPU()
		w.nextLog = now + int64(logInterval)
		if w.id == 0 {
			w.sample(&w.atStart)
		}
		w.budget = w.share
	}
	if w.counting && now >= w.window.stop {
		w.endCounting(now)
		if w.id == 0 {
			w.sample(&w.atEnd)
		}
	}
	if w.recording && w.cfg.Log && now >= w.nextLog {
		w.rec.cut(w.nextLog)
		w.nextLog += int64(logInterval)
	}
	if w.dueInWindow() && now-longestTail >= w.window.stop {
		w.giveUpDue(now)
	}
	w.stopping = now >= w.window.stop && !w.dueInWindow() || w.budget == 0 || w.broken.Load()
}

func (w *worker) endCounting(now int64) {
	w.counting = false
	w.endedAt = now
	w.busy += threadCPU()
}

// dueInWindow reports whether the next unit of an open loop is still one of the window's.
func (w *worker) dueInWindow() bool { return w.interval > 0 && int64(w.nextDue) < w.window.stop }

// giveUpDue gives up the units that were due and have not begun. They are recorded with the time that they have waited.
func (w *worker) giveUpDue(now int64) {
	for ; w.dueInWindow(); w.nextDue += w.interval {
		w.record(metricUnit, int64(w.nextDue), now-int64(w.nextDue))
		w.unbegun++
	}
}

// record notes a duration of something that began, or was due, at the time at, and has just ended.
func (w *worker) record(m metric, at, took int64) {
	if w.counting {
		w.ended[m]++
	}
	if w.recording && at >= w.window.record && at < w.window.stop {
		w.rec.add(m, took)
	}
}

// finished reports whether all units of this worker have ended or, when jobs go from one worker's connections to
// another's, those of all workers.
func (w *worker) finished() bool {
	if !w.stopping || w.active > 0 {
		return false
	}
	w.publish()
	w.public.finished.Store(true)
	if !w.consumes {
		return true
	}
	for i := range w.counters {
		if t := &w.counters[i]; !t.finished.Load() || t.active.Load() > 0 {
			return false
		}
	}
	return true
}

// reportMissing gives up, and reports every connection whose replies did not come as a violation.
func (w *worker) reportMissing() {
	for i := range w.conns {
		c := &w.conns[i]
		if c.role != roleUnits || c.head == c.tail {
			continue
		}
		w.violate(bench.ViolationMissing, "connection %d: no reply to %s for %v",
			i, metricNames[w.slot(c, c.head).metric], w.cfg.ReplyTimeout)
	}
	for _, i := range w.refused {
		w.violate(bench.ViolationClosed, "connection %d: no room in the server's backlog for %v", i, w.cfg.ReplyTimeout)
	}
	if w.consumes && w.backlog() > 0 {
		w.violate(bench.ViolationMissing, "%d jobs were put and did not come back", w.backlog())
	}
	// Otherwise other workers would wait for this one.
	w.active = 0
	w.public.finished.Store(true)
}

func (w *worker) publish() {
	t := w.public
	t.commands.Store(w.commands)
	t.units.Store(w.ended[metricUnit])
	t.puts.Store(w.puts)
	t.deletions.Store(w.deletions)
	t.active.Store(w.active)
}

// spinBelow is the time before the next unit of an open loop during which a worker does not sleep, in nanoseconds. To
// be woken takes many microseconds, on a virtual machine most of all, and they would count as the server's.
const spinBelow = 200e3

// sleep returns how long to wait for events, in nanoseconds.
func (w *worker) sleep(now int64) int64 {
	const atMost = 50e6 // also the delay with which an interruption is noticed
	d := int64(atMost)
	switch {
	case !w.recording:
		d = min(d, max(w.window.record-now, 0))
	case w.counting:
		d = min(d, max(w.window.stop-now, 0))
	}
	if w.stopping || len(w.refused) > 0 {
		return min(d, 1e6) // no event tells of another worker's progress, or of room in a backlog
	}
	if w.freeHead != w.freeTail {
		if w.interval > 0 {
			d = min(d, max(int64(w.nextDue)-now, 0))
			if d < spinBelow && host.HasSeveralProcessors() {
				return 0
			}
		}
		if w.cfg.Backlog > 0 && len(w.counters) > 1 {
			d = min(d, 200e3)
		}
	}
	return d
}

func (w *worker) pushFree(c *conn) {
	w.free[w.freeTail&uint32(len(w.free)-1)] = c.index
	w.freeTail++
}

func (w *worker) dispatch(now int64) {
	var c *conn
	for w.freeHead != w.freeTail && !w.stopping && w.mayBegin(now) {
		next := &w.conns[w.free[w.freeHead&uint32(len(w.free)-1)]]
		w.freeHead++
		if next.state != stateReady {
			continue
		}
		if c != nil && c != next {
			w.flush(c)
		}
		c = next
		w.begin(c, now)
	}
	if c != nil {
		w.flush(c)
	}
}

func (w *worker) mayBegin(now int64) bool {
	if w.budget == 0 || w.interval > 0 && (float64(now) < w.nextDue || !w.dueInWindow()) {
		return false
	}
	return w.cfg.Backlog == 0 || w.backlog() < int64(w.cfg.Backlog)
}

// backlog returns the number of jobs in the server, counting the puts that are under way.
func (w *worker) backlog() int64 {
	n := w.puts - w.deletions
	if len(w.counters) > 1 {
		for i := range w.counters {
			if i != w.id {
				n += w.counters[i].puts.Load() - w.counters[i].deletions.Load()
			}
		}
	}
	return n
}

func (w *worker) begin(c *conn, now int64) {
	if w.interval > 0 {
		now = int64(w.nextDue)
		w.nextDue += w.interval
	}
	if w.budget > 0 {
		w.budget--
	}
	w.active++
	c.units++
	w.drv.begin(w, c, now)
}

// end ends the unit of c that began at start, and begins the next one where that is due.
func (w *worker) end(c *conn, start, now int64) {
	w.active--
	c.units--
	w.record(metricUnit, start, now-start)
	if w.stopping {
		return
	}
	if w.interval == 0 && w.mayBegin(now) {
		w.begin(c, now)
		return
	}
	w.pushFree(c)
}

func (w *worker) handle(n int) {
	for i := range n {
		key, readable, writable := w.poll.event(i)
		c := &w.conns[key]
		if c.state == stateConnecting {
			if writable {
				w.connected(c)
			}
			continue
		}
		if writable && c.writing {
			w.flush(c)
		}
		if readable && c.state != stateClosed {
			w.read(c)
		}
	}
}
