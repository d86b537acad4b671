package load

import (
	"errors"
	"fmt"

	"trellis/bench"

	"golang.org/x/sys/unix"
)

// connectsAtOnce bounds the connections of a worker that are being made, so that no listener's backlog overflows.
const connectsAtOnce = 100

func (w *worker) connect() error {
	next := 0
	w.lastReply = w.now()
	for w.ready < len(w.conns) {
		for next < len(w.conns) && next-w.ready < connectsAtOnce {
			if err := w.open(&w.conns[next]); errors.Is(err, unix.EAGAIN) {
				break // the backlog of a unix socket is full
			} else if err != nil {
				return fmt.Errorf("connection %d of %d: %w", next+1, len(w.conns), err)
			}
			next++
		}
		w.handle(w.poll.wait(10e6))
		if w.abort.Load() {
			return errAborted
		}
		if w.violations.total.Load() > 0 {
			return bench.ErrBroken
		}
		if w.silent(w.now()) {
			return fmt.Errorf("%d of %d connections were ready when the server ceased to answer", w.ready, len(w.conns))
		}
	}
	return nil
}

// open begins a connection. It returns unix.EAGAIN when a unix socket has no room in its backlog,
// and may then be called again.
func (w *worker) open(c *conn) error {
	if c.began == 0 {
		c.began = w.now()
	}
	fd, inProgress, err := dial(w.addr, int(w.dialled.Add(1)-1)%w.spread)
	if err != nil {
		return err
	}
	c.fd, c.head, c.tail, c.nextSetup = int32(fd), 0, 0, 0
	c.state, c.writing = stateConnecting, inProgress
	if err := w.poll.add(c.fd, c.index, inProgress); err != nil {
		return err
	}
	if !inProgress {
		w.connected(c)
	}
	return nil
}

// connected goes on when the connection stands or has failed.
func (w *worker) connected(c *conn) {
	if c.writing {
		if e, err := unix.GetsockoptInt(int(c.fd), unix.SOL_SOCKET, unix.SO_ERROR); err != nil || e != 0 {
			w.fail(c, "connecting: %v", unix.Errno(e))
			return
		}
		c.writing = false
		if err := w.poll.arm(c.fd, c.index, false); err != nil {
			w.fail(c, "waiting for replies: %v", err)
			return
		}
	}
	if config := w.addr.TLS(); config != nil {
		s, err := handshake(c.fd, config, w.cfg.ReplyTimeout)
		if err != nil {
			w.fail(c, "handshake: %v", err)
			return
		}
		c.secure = s
	}
	now := w.now()
	w.lastReply = now
	w.record(metricConnect, c.began, now-c.began)
	c.began, c.state = 0, stateSetup
	if token := w.cfg.Token; token != "" {
		w.sendTube(c, metricAuth, "auth ", token)
	}
	w.prepareConn(c, now)
	w.flush(c)
}

// prepareConn sends set-up commands as far as the slots suffice, and makes c ready when all have been answered.
func (w *worker) prepareConn(c *conn, now int64) {
	for c.tail-c.head <= w.mask && w.setup(c, int(c.nextSetup)) {
		c.nextSetup++
	}
	if c.head != c.tail {
		return
	}
	c.state = stateReady
	if c.units > 0 { // its unit was to connect again
		w.end(c, c.drv.start, now)
		return
	}
	w.ready++
}

func (w *worker) setup(c *conn, k int) bool {
	switch c.role {
	case roleIdle:
		// One command, so that the server is known to have accepted the connection.
		if k == 0 {
			w.sendTube(c, metricUse, "list-tube-used", "")
		}
		return k == 0
	case roleWaiting:
		switch k {
		case 0:
			w.sendTube(c, metricWatch, "watch ", w.emptyTube())
		case 1:
			w.sendTube(c, metricWatch, "ignore ", "default")
		}
		return k < 2
	}
	if w.drv.setup(w, c, k) {
		return true
	}
	// The jobs that the connection holds: it puts as many as it reserves. Another connection
	// may reserve those that it put.
	if c.nextHeld >= 2*w.cfg.Held {
		return false
	}
	now := w.now()
	if c.nextHeld%2 == 0 {
		w.sendPut(c, now, now, 0, 0, 0)
	} else {
		w.sendReserve(c, now, now, 0)
	}
	c.nextHeld++
	return true
}

// close closes c, and drops what has not been written to it or parsed.
func (w *worker) close(c *conn) {
	if c.fd >= 0 {
		unix.Close(int(c.fd))
	}
	c.fd, c.state, c.secure = -1, stateClosed, nil
	c.carry, c.pending = c.carry[:0], c.pending[:0]
	w.out = w.out[:0]
}

// fail closes a connection that broke, and ends the run: its figures would not be those of the configuration.
func (w *worker) fail(c *conn, format string, args ...any) {
	w.violate(bench.ViolationClosed, "connection %d: "+format, append([]any{c.index}, args...)...)
	w.close(c)
	w.active -= int64(c.units)
	c.units = 0
	w.broken.Store(true)
}

// reconnect closes c and opens it again. The unit that began at start ends when the new connection is set up.
func (w *worker) reconnect(c *conn, start int64) {
	w.close(c)
	c.drv.start = start
	w.refused = append(w.refused, c.index)
	w.reopen()
}

// reopen opens the connections in w.refused, until the server's backlog is full.
func (w *worker) reopen() {
	for len(w.refused) > 0 {
		c := &w.conns[w.refused[0]]
		err := w.open(c)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		w.refused = w.refused[1:]
		if err != nil {
			w.fail(c, "connecting again: %v", err)
		}
	}
}

func (w *worker) rollCall() error {
	w.stopping, w.lastReply = true, w.now()
	w.ready = 0
	idle := 0
	for i := range w.conns {
		if c := &w.conns[i]; c.role == roleIdle && c.state == stateReady {
			idle++
			c.state, c.nextSetup = stateSetup, 0
			w.prepareConn(c, w.lastReply)
			w.flush(c)
		}
	}
	for w.ready < idle {
		w.handle(w.poll.wait(10e6))
		if w.abort.Load() {
			return errAborted
		}
		if w.violations.total.Load() > violationLimit || w.silent(w.now()) {
			w.violate(bench.ViolationMissing, "%d of %d idle connections do not answer", idle-w.ready, idle)
			return bench.ErrBroken
		}
	}
	return nil
}
