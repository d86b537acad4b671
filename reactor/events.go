package reactor

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
		l.links.Writable(fd)
	}
}

// EndRound implements gnetloop.Handler. What all that the round did has to say on a trunk leaves in one write.
func (l *loop) EndRound() {
	if l.links.HasOutput() {
		defer l.recovered()
		l.links.Flush(l.server.now())
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
func (t *trunkConn) Received(p []byte) {
	l := t.loop
	defer l.recovered()
	now := l.server.now()
	l.engine.Spend(connCost)
	t.Link.Received(now, p)
	l.serve(now)
}

// Closing implements gnetloop.Conn.
func (t *trunkConn) Closing(err error) {
	l := t.loop
	defer l.recovered()
	now := l.server.now()
	if err == nil {
		err = ErrClosed
	}
	t.Closed(now, err)
	l.serve(now)
	l.server.acceptor.Freed()
}
