package reactor

import (
	"errors"
	"time"

	"trellis/reactor/internal/trunk"
)

// A gateway's loop has been in contact with the leader when it sent the last ping that was answered: the leader led when it
// answered that. Without contact it ends its clients before the leader has others have their jobs.

// LeaderPatience is after what time without contact a gateway has reset its clients, and how long one waits until a leader hears
// of it, or goes on with it. What they held must not be free before.
const LeaderPatience = 6 * time.Second

const (
	// pingPause is between two pings.
	pingPause = 500 * time.Millisecond
	// maxPinged is how many pings may be without an answer.
	maxPinged = 32
)

// contact is what a gateway's loop knows of its contact with the leader. Times are those of a clock that goes on
// while the machine sleeps.
type contact struct {
	last   time.Duration            // when it was
	next   time.Duration            // when the next ping is due, by the loop's clock; never while there is nobody to lose
	sent   uint32                   // pings on this trunk
	pinged [maxPinged]time.Duration // when they were sent, by their number
	answer uint32                   // of them, the last that was answered
}

var (
	errNoContact = errors.New("the leader has answered nothing for too long")
	errPong      = errors.New("a pong for what was not asked")
)

// begin begins with a trunk.
func (k *contact) begin(now time.Duration) { k.sent, k.answer, k.next = 0, 0, now }

// ping notes the next ping.
func (k *contact) ping(at time.Duration) (number uint32, ok bool) {
	if k.sent-k.answer == maxPinged {
		return 0, false
	}
	k.sent++
	k.pinged[k.sent%maxPinged] = at
	return k.sent, true
}

// pong takes the answer to a ping.
func (k *contact) pong(number uint32) error {
	if number-k.answer > k.sent-k.answer {
		return errPong
	}
	if number != k.answer {
		k.answer, k.last = number, k.pinged[number%maxPinged]
	}
	return nil
}

// inContact notes when the loop was in contact last.
func (g *gateway) inContact(at time.Duration) {
	g.contact.last = at
	g.loop.counts.contact.Store(int64(at))
}

// lastContact is when the loop was in contact with the leader of its trunk, or came to that, by the loop's clock.
func (g *gateway) lastContact(now time.Duration) time.Duration {
	if g.version < resumesSince {
		return now // it sends no pings
	}
	return now - min(now-g.fenced, g.loop.server.bootTime()-g.contact.last)
}

// look is called at the beginning of each round, before anything is said to clients: it ends them all if there was no contact
// for too long.
func (g *gateway) look() {
	if g == nil || len(g.sessions) == 0 || g.version < resumesSince {
		return
	}
	defer g.loop.recovered()
	s := g.loop.server
	if s.bootTime()-g.contact.last >= LeaderPatience {
		g.giveUp(s.now(), errNoContact)
	}
}

// nextLook is when tick is to be called, by the loop's clock.
func (g *gateway) nextLook() time.Duration {
	if g == nil {
		return never
	}
	return g.contact.next
}

// tick sends a ping, and ends clients for whom this member has not applied for too long what was executed for them.
func (g *gateway) tick(now time.Duration) {
	k := &g.contact
	k.next = now + pingPause
	switch {
	case g.version < resumesSince || !g.welcomed && len(g.sessions) == 0:
		k.next = never
	case g.welcomed:
		if n, ok := k.ping(g.loop.server.bootTime()); ok {
			g.trunk.send(&trunk.Item{Kind: trunk.KindPing, Number: n})
		}
	}
	if now-g.fenced < LeaderPatience {
		return
	}
	for !g.barred.empty() {
		if f := g.barred.pop(); f.conn != nil && f.barred && f.conn.phase == forwarded {
			g.end(f, &g.loop.counts.lags)
		}
	}
}

// giveUp resets the clients that may have something to lose, and forgets all sessions.
func (g *gateway) giveUp(now time.Duration, why error) {
	for _, f := range g.forwards {
		if !f.untouched() && g.version >= resumesSince {
			f.lost = f.given() + 1 // it does not go on
		}
	}
	g.givesUp = true
	if g.trunk != nil {
		g.trunk.fail(now, why)
	} else {
		g.part(now)
		g.loop.gnet.Wake()
	}
	g.givesUp = false
	for _, f := range g.forwards {
		if f.session != 0 && f.conn.phase == forwarded {
			g.anew(f, now)
		}
	}
	clear(g.sessions)
}

var started = time.Now()

// sinceStart is a clock that need not go on while the machine sleeps.
func sinceStart() time.Duration { return time.Since(started) }

// bootTime is the time of contact.
func (s *Server) bootTime() time.Duration {
	if clock := s.hooks.boot; clock != nil {
		return clock()
	}
	return bootTime()
}
