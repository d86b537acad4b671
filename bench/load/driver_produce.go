package load

import (
	"time"

	"trellis/bench"
)

// produceDriver puts on some connections, and reserves and deletes on the others. A unit is a put.
//
// A consumer has one reserve in flight whatever the depth, and sends the delete of a job together with the next
// reserve. With several reserves in flight, a delete would stand behind one that waits, and the server would execute
// it only after further jobs had come.
type produceDriver struct {
	rotate   bool // producers use one tube after the other
	watchAll bool // workers watch all tubes
	delayed  bool // jobs have a delay
}

func (d produceDriver) setup(w *worker, c *conn, k int) bool {
	if c.role == roleUnits {
		if k == 0 {
			w.sendTube(c, metricUse, "use ", w.tube(int(c.number)))
		}
		return k == 0
	}
	// Worker n of m watches the tubes n, n+m, n+2m and so on.
	first, step := int(c.number)%len(w.tubes), w.cfg.Conns-w.cfg.Producers
	if d.watchAll {
		first, step = 0, 1
	}
	switch tube := first + k*step; {
	case tube < len(w.tubes):
		w.sendTube(c, metricWatch, "watch ", w.tubes[tube])
		return true
	case tube-step < len(w.tubes):
		w.sendTube(c, metricWatch, "ignore ", "default")
		return true
	}
	return false
}

func (d produceDriver) join(w *worker, c *conn, now int64) { w.sendReserve(c, now, now, 0) }

func (d produceDriver) begin(w *worker, c *conn, at int64) {
	if d.rotate {
		// Each producer begins with another tube, or all of them would use the same one at a time.
		c.drv.sent++
		w.sendTube(c, metricUse, "use ", w.tube(int(c.number)*len(w.tubes)/w.cfg.Producers+int(c.drv.sent)))
	}
	delay := uint32(0)
	if d.delayed {
		delay = 1 + w.rng.Uint32N(uint32(w.cfg.Delay/time.Second))
	}
	w.sendPut(c, at, at, 0, delay, delay)
}

func (d produceDriver) reply(w *worker, c *conn, s slot, r *reply, now int64, ok bool) {
	switch {
	case s.metric == metricPut:
		w.end(c, s.start, now)
	case s.metric != metricReserve:
	default:
		if ok {
			if d.delayed {
				d.checkDelay(w, r.id, now)
			}
			w.sendDelete(c, r.id, now, now)
		}
		w.sendReserve(c, now, now, 0)
	}
}

// checkDelay looks at when the job that was just reserved came.
func (d produceDriver) checkDelay(w *worker, id uint64, now int64) {
	if w.took < 0 {
		w.violate(bench.ViolationEarly, "job %d came before its put was answered, in spite of its delay", id)
		return
	}
	late := w.took - int64(w.tag)*int64(time.Second)
	if late < 0 {
		w.violate(bench.ViolationEarly, "job %d with a delay of %d s came %v early", id, w.tag, -duration(late))
	}
	w.record(metricLate, now-w.took, late)
}

func duration(ns int64) time.Duration { return time.Duration(ns) }
