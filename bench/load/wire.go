package load

import (
	"golang.org/x/sys/unix"

	"trellis/bench"
)

// read handles the replies that have come on c, and sends the commands that follow from them in one write.
func (w *worker) read(c *conn) {
	n, e := sysRead(c.fd, w.in)
	now := w.now()
	switch {
	case e == unix.EAGAIN || e == unix.EINTR:
		return
	case e != 0:
		w.fail(c, "reading: %v", e)
		return
	case n == 0:
		w.fail(c, "closed by the server with %d replies to come", c.tail-c.head)
		return
	}
	w.lastReply = now
	p := w.in[:n]
	if c.secure != nil {
		var err error
		if p, err = c.secure.decrypt(p, w.plain[:0]); err != nil {
			w.fail(c, "reading: %v", err)
			return
		}
		w.plain = p
		if len(p) == 0 {
			return
		}
	}
	if len(c.carry) > 0 {
		c.carry = append(c.carry, p...)
		if len(c.carry) < c.want {
			return
		}
		p = c.carry
	}
	for len(p) > 0 {
		n, want := parseReply(p, &w.rep)
		if n == 0 {
			c.want = want
			break
		}
		p = p[n:]
		w.take(c, now)
		if c.state == stateClosed || c.state == stateConnecting {
			return
		}
	}
	c.carry = append(c.carry[:0], p...)
	w.flush(c)
}

// take books the reply in w.rep, which answers the oldest command in flight on c, and calls the driver.
func (w *worker) take(c *conn, now int64) {
	if c.head == c.tail {
		w.violate(bench.ViolationReply, "connection %d: %q came unasked", c.index, w.rep.line)
		return
	}
	s := *w.slot(c, c.head)
	c.head++
	ok := w.check(&s, &w.rep, now)
	if w.counting {
		w.commands++
	}
	w.record(s.metric, s.start, now-s.sentAt)
	if c.state == stateSetup {
		if s.metric == metricReserve && ok {
			c.reservations = append(c.reservations, w.rep.id)
		}
		w.prepareConn(c, now)
		return
	}
	if c.role == roleIdle || c.role == roleWaiting {
		return
	}
	w.drv.reply(w, c, s, &w.rep, now, ok)
}

func (w *worker) slot(c *conn, at uint32) *slot {
	return &w.slots[c.index*(w.mask+1)+at&w.mask]
}

func (w *worker) flush(c *conn) {
	p := w.out
	if c.secure != nil && len(p) > 0 {
		p = c.secure.encrypt(p)
	}
	if len(c.pending) > 0 {
		c.pending = append(c.pending, p...)
		p = c.pending
	}
	w.out = w.out[:0]
	if len(p) == 0 || c.state == stateClosed {
		return
	}
	n, e := sysWrite(c.fd, p)
	if e != 0 {
		if e != unix.EAGAIN && e != unix.EINTR {
			w.fail(c, "writing: %v", e)
			return
		}
		n = 0
	}
	c.pending = append(c.pending[:0], p[n:]...)
	if more := len(c.pending) > 0; more != c.writing {
		c.writing = more
		if err := w.poll.arm(c.fd, c.index, more); err != nil {
			w.fail(c, "waiting to write: %v", err)
		}
	}
}
