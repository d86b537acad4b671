package load

import "trellis/bench"

const (
	// priorityBatch is the number of jobs of a unit.
	priorityBatch = 100
	// priorityRange is the number of priorities; some jobs of a batch share one, so that their age decides.
	priorityRange = 50
)

// priorityDriver puts a batch of jobs with random priorities into a tube of the connection's own, and then takes them
// out again: the more urgent first, and of equals the older.
type priorityDriver struct{ ownTube }

func (d priorityDriver) begin(w *worker, c *conn, at int64) {
	c.drv = driverState{start: at}
	for range min(w.cfg.Depth, priorityBatch) {
		d.put(w, c, at)
	}
}

func (priorityDriver) put(w *worker, c *conn, at int64) {
	pri := w.rng.Uint32N(priorityRange)
	c.drv.sent++
	w.sendPut(c, at, c.drv.start, pri, 0, 1+pri)
}

func (priorityDriver) reserve(w *worker, c *conn, now int64) {
	c.drv.sent++
	w.sendReserve(c, now, c.drv.start, 0)
}

func (d priorityDriver) reply(w *worker, c *conn, s slot, r *reply, now int64, ok bool) {
	p := &c.drv
	switch {
	case !ok || p.done > 2*priorityBatch: // the batch is broken; it ends with what is in flight
		p.done = 2*priorityBatch + 1
		if c.head == c.tail {
			w.end(c, p.start, now)
		}
	case s.metric == metricPut:
		if p.done++; p.sent < priorityBatch {
			d.put(w, c, now)
		} else if p.done == priorityBatch {
			for range min(w.cfg.Depth, priorityBatch) {
				d.reserve(w, c, now)
			}
		}
	case s.metric == metricReserve:
		if w.tag < p.tag || w.tag == p.tag && r.id <= p.last {
			w.violate(bench.ViolationOrder, "job %d of priority %d came after one that is less urgent or younger", r.id, w.tag-1)
		}
		p.tag, p.last = w.tag, r.id
		w.sendDelete(c, r.id, now, p.start)
	default:
		if p.done++; p.done == 2*priorityBatch {
			w.end(c, p.start, now)
		} else if p.sent < 2*priorityBatch {
			d.reserve(w, c, now)
		}
	}
}
