package reactor

import "time"

// maxUnauthenticated is how many clients may be connected that have not authenticated yet. Where few connections are
// allowed, it is a quarter of them. Each loop has an equal share. In a crowd, the oldest is disconnected for the
// newest, as among TLS handshakes.
const maxUnauthenticated = 1000

// beginAuthentication gives the client a time to authenticate. If there are too many such clients, another one is
// disconnected.
func (c *conn) beginAuthentication(now time.Duration) {
	l := c.loop
	if l.unauthenticated.Full() {
		l.giveUpUnauthenticated(now)
	}
	c.deadline = &deadline{conn: c, active: now, index: -1}
	c.deadline.place = l.unauthenticated.Enter(0, c, c.endpoint().Source())
	l.deadlines.set(c.deadline, c.endsAt(now))
}

// giveUpUnauthenticated disconnects the client that has been silent for longest, or of the source that has more than
// its share. It reports false if all clients of the loop have authenticated.
func (l *loop) giveUpUnauthenticated(now time.Duration) bool {
	c := l.unauthenticated.Oldest(0, nil)
	if c == nil {
		return false
	}
	c.countRefusal(RefusedCrowded)
	c.fail()
	c.end(now)
	return true
}
