package load

import "trellis/bench"

// putDriver puts jobs. A unit is a put.
type putDriver struct{ ownTube }

func (putDriver) begin(w *worker, c *conn, at int64) { w.sendPut(c, at, at, 0, 0, 0) }

func (putDriver) reply(w *worker, c *conn, s slot, _ *reply, now int64, _ bool) {
	w.end(c, s.start, now)
}

// cycleDriver puts a job, reserves one and deletes it. Connections that share a tube share its jobs: there is always
// one ready for each reserve, as each comes after a put of its own unit.
type cycleDriver struct{ putDriver }

func (cycleDriver) reply(w *worker, c *conn, s slot, r *reply, now int64, ok bool) {
	switch {
	case !ok:
		w.end(c, s.start, now)
	case s.metric == metricPut:
		w.sendReserve(c, now, s.start, 0)
	case s.metric == metricReserve:
		w.sendDelete(c, r.id, now, s.start)
	default:
		w.end(c, s.start, now)
	}
}

// buryDriver goes the way of a job that fails once: put, reserve, bury, kick, reserve, delete. As with cycleDriver,
// connections share jobs, and each finds one in the state that it needs.
type buryDriver struct{ putDriver }

const (
	buryFirst uint8 = iota
	buryAgain
)

func (buryDriver) reply(w *worker, c *conn, s slot, r *reply, now int64, ok bool) {
	switch {
	case !ok || s.metric == metricDelete:
		w.end(c, s.start, now)
	case s.metric == metricPut:
		w.sendReserve(c, now, s.start, buryFirst)
	case s.metric == metricReserve && s.stage == buryFirst:
		w.sendBury(c, r.id, now, s.start)
	case s.metric == metricBury:
		w.sendNumber(c, metricKick, "kick ", 1, now, s.start, 0)
	case s.metric == metricKick:
		if r.id != 1 {
			w.violate(bench.ViolationReply, "kick 1 was answered %q with a job buried", r.line)
			w.end(c, s.start, now)
			return
		}
		w.sendReserve(c, now, s.start, buryAgain)
	default:
		w.sendDelete(c, r.id, now, s.start)
	}
}

// timeoutDriver reserves from an empty tube. A unit is a reserve that times out.
type timeoutDriver struct{ ownTube }

func (timeoutDriver) begin(w *worker, c *conn, at int64) {
	w.sendNumber(c, metricReserve, "reserve-with-timeout ", uint64(w.cfg.Timeout.Seconds()), at, at, mayFindNothing)
}

func (timeoutDriver) reply(w *worker, c *conn, s slot, r *reply, now int64, ok bool) {
	if ok && r.kind != replyTimedOut {
		w.violate(bench.ViolationDuplicate, "job %d came from a tube into which nothing was put", r.id)
	}
	late := now - s.sentAt - int64(w.cfg.Timeout)
	if late < 0 {
		w.violate(bench.ViolationEarly, "a reserve with a timeout of %v timed out %v early", w.cfg.Timeout, -duration(late))
	}
	w.record(metricLate, s.start, late)
	w.end(c, s.start, now)
}

// churnSources is the number of source addresses that connections leave from, so that ports of closed connections may
// rest for a while.
const churnSources = 10

// connectDriver connects, has one command answered, and closes. With TLS a unit has a handshake, and reads the tickets
// with which the next one may resume the session.
type connectDriver struct{ ownTube }

func (connectDriver) setup(w *worker, c *conn, k int) bool {
	if k == 0 {
		w.sendTube(c, metricUse, "list-tube-used", "")
	}
	return k == 0
}

func (connectDriver) begin(w *worker, c *conn, at int64) { w.reconnect(c, at) }

func (connectDriver) reply(*worker, *conn, slot, *reply, int64, bool) {}

// churnDriver goes through a cycle on a new connection, and closes it.
type churnDriver struct{ cycleDriver }

func (d churnDriver) reply(w *worker, c *conn, s slot, r *reply, now int64, ok bool) {
	if ok && s.metric != metricDelete {
		d.cycleDriver.reply(w, c, s, r, now, ok)
		return
	}
	w.reconnect(c, s.start)
}
