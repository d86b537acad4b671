package reactor

import (
	"slices"
	"time"
)

// maxUnauthenticated is how many clients may be connected that have not authenticated yet. Where
// few connections are allowed, it is a quarter of them. Each loop has an equal share.
const maxUnauthenticated = 1000

// unauthenticated are the clients of a loop that have not authenticated yet. Among many, the
// newest is preferred, as among TLS handshakes: a good client sends its token at once, and
// is done before the silent ones around it can make it old. And one source may have a quarter of
// the places. The loop's goroutine owns them.
type unauthenticated struct {
	most    int
	count   int
	sources sources     // of those that are counted
	queue   []*deadline // the oldest first; also of some that have authenticated, or gone, since
}

func (g *unauthenticated) init(cfg *Config) {
	g.most = max(1, min(maxUnauthenticated, cfg.MaxConnections/4)/cfg.Loops)
	g.sources.init(g.most)
}

// left is called when a client does not have to authenticate any more.
func (g *unauthenticated) left(d *deadline) {
	g.count--
	g.sources.remove(d.source)
}

// current tells whether d is the deadline of a client that has not authenticated yet.
func (d *deadline) current() bool { return d.conn.deadline == d && d.conn.phase == authenticating }

// beginAuthentication gives the client a time to authenticate. If there are too many such clients,
// another one is disconnected.
func (c *conn) beginAuthentication(now time.Duration) {
	l := c.loop
	g := &l.unauthenticated
	if g.count >= g.most {
		l.giveUpUnauthenticated(now)
	}
	c.deadline = &deadline{conn: c, active: now, source: c.endpoint().source(), index: -1}
	l.deadlines.set(c.deadline, c.endsAt(now))
	if len(g.queue) >= 2*g.most {
		g.queue = slices.DeleteFunc(g.queue, func(d *deadline) bool { return !d.current() })
	}
	g.queue = append(g.queue, c.deadline)
	g.count++
	g.sources.add(c.deadline.source)
}

// giveUpUnauthenticated disconnects the client that has been silent for longest, or of the source
// that has more than its share. It reports false if all clients of the loop have authenticated.
func (l *loop) giveUpUnauthenticated(now time.Duration) bool {
	g := &l.unauthenticated
	for len(g.queue) > 0 && !g.queue[0].current() {
		g.queue[0] = nil
		g.queue = g.queue[1:]
	}
	from, crowded := g.sources.heaviest()
	i := slices.IndexFunc(g.queue, func(d *deadline) bool { return d.current() && (!crowded || d.source == from) })
	if i < 0 {
		return false
	}
	c := g.queue[i].conn
	c.countRefusal(RefusedCrowded)
	c.fail()
	c.end(now)
	return true
}

// giveUpUnauthenticated makes room for a connection by disconnecting a client that has not
// authenticated yet. It reports false if there is none on the acceptor's loop; then those of
// other loops make room for whoever comes next.
func (a *acceptor) giveUpUnauthenticated() bool {
	s := a.server
	if s.cfg.Access == nil || a.loop.giveUpUnauthenticated(s.now()) {
		return s.cfg.Access != nil
	}
	for _, l := range s.loops {
		if l != a.loop {
			l.call(func(l *loop) { l.giveUpUnauthenticated(s.now()) })
		}
	}
	return false
}
