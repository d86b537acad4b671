package reactor

import (
	"errors"
	"io"
	"slices"
)

// Round implements gnetloop.Handler.
func (l *loop) Round(woken bool) {
	l.newRound()
	l.gateway.look()
	if woken {
		l.wake()
	}
}

// Reported implements gnetloop.Handler. The numbers of handshakes are not negative.
func (l *loop) Reported(number int32, input, ended bool) {
	if number >= 0 {
		l.engine.Spend(connCost)
	}
	l.server.acceptor.Reported(number, input, ended)
}

// Writable implements gnetloop.Handler.
func (l *loop) Writable(fd int) {
	if l.streams.Writable(fd) {
		l.serve(l.server.now())
	} else {
		l.trunks.takesOutput(fd)
	}
}

// EndRound implements gnetloop.Handler. What all that the round did has to say on a trunk leaves in one write.
func (l *loop) EndRound() {
	if len(l.trunks.dirty) == 0 {
		return
	}
	now := l.server.now()
	for len(l.trunks.dirty) > 0 {
		t := l.trunks.dirty[0]
		l.trunks.dirty = slices.Delete(l.trunks.dirty, 0, 1)
		t.dirty = false
		t.flush(now)
	}
}

// Received implements gnetloop.Conn.
func (c *conn) Received(p []byte) {
	l := c.loop
	now := l.server.now()
	l.engine.Spend(connCost)
	c.received(now, p)
	l.serve(now)
}

// Closing implements gnetloop.Conn.
func (c *conn) Closing(err error) {
	l := c.loop
	now := l.server.now()
	if c.Polled() { // otherwise it goes on without gnet already
		c.LeavePoller()
		c.closing(now, err)
	}
	l.serve(now)
	l.server.acceptor.Freed()
}

// Received implements gnetloop.Conn.
func (t *trunkLine) Received(p []byte) {
	l := t.loop
	now := l.server.now()
	l.engine.Spend(connCost)
	t.received(now, p)
	l.serve(now)
}

// Closing implements gnetloop.Conn.
func (t *trunkLine) Closing(err error) {
	l := t.loop
	now := l.server.now()
	t.closing = true
	switch {
	case err == nil:
		err = ErrClosed
	case errors.Is(err, io.EOF):
		err = errOtherSide
	}
	t.fail(now, err)
	l.serve(now)
	l.server.acceptor.Freed()
}
