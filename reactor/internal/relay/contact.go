package relay

import (
	"errors"
	"time"

	"trellis/reactor/internal/trunk"
)

// A gateway has been in contact with the leader when it sent the last ping that was answered: the leader led when it
// answered that. Without contact the gateway ends its clients before the leader gives their jobs to others.

// LeaderPatience is how long a gateway forwards without contact before it resets its clients, and how long a client
// waits for a leader. What they held must not be free before.
const LeaderPatience = 6 * time.Second

const (
	// pingPause is between two pings.
	pingPause = 500 * time.Millisecond
	// maxPinged is how many pings may be without an answer.
	maxPinged = 32
)

// ErrNoContact is why a gateway gives up that the leader has not answered for LeaderPatience.
var ErrNoContact = errors.New("the leader has answered nothing for too long")

var errPong = errors.New("a pong for what was not asked")

// contact is what a gateway knows of its contact with the leader, by the boot time.
type contact struct {
	last   time.Duration            // when it was
	next   time.Duration            // when the next ping is due, by the loop's clock; Never while there is nobody to lose
	sent   uint32                   // pings on this trunk
	pinged [maxPinged]time.Duration // when they were sent, by their number
	answer uint32                   // of them, the last that was answered
}

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

// inContact notes when the gateway was in contact last.
func (g *Gateway) inContact(at time.Duration) {
	g.contact.last = at
	g.host.InContact(at)
}

// lastContact is when the gateway was in contact with the leader of its trunk, or came to that, by the loop's clock.
func (g *Gateway) lastContact(now time.Duration) time.Duration {
	if !g.leader.resumes() {
		return now // it sends no pings
	}
	return now - min(now-g.leader.at, g.host.BootTime()-g.contact.last)
}

// Check returns ErrNoContact if the gateway is to give up: the host then ends the trunk with that, or calls
// Disconnected if there is none. It does so at the beginning of each round, before anything is said to clients.
func (g *Gateway) Check() error {
	if len(g.resumes) > 0 && g.leader.resumes() && g.host.BootTime()-g.contact.last >= LeaderPatience {
		return ErrNoContact
	}
	return nil
}

// NextTurn is when Turn has something to do by time alone, or Never.
func (g *Gateway) NextTurn() time.Duration { return g.contact.next }

// tick sends a ping, and ends clients for whom this member has not applied for too long what was executed for them.
func (g *Gateway) tick(now time.Duration) {
	k := &g.contact
	k.next = now + pingPause
	ready := g.IsReady()
	switch {
	case !g.leader.resumes() || !ready && len(g.resumes) == 0:
		k.next = Never
	case ready:
		if n, ok := k.ping(g.host.BootTime()); ok {
			g.link.send(trunk.Item{Kind: trunk.KindPing, Number: n})
		}
	}
	if now-g.leader.at < LeaderPatience {
		return
	}
	for !g.link.fenced.empty() {
		if f := g.link.fenced.pop(); f.state == replaying {
			g.lose(f, Lagging)
		}
	}
}
