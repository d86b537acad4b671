package engine

import "trellis/binlog/journal"

// A rollCall is a request to describe sessions, or to end them, that goes from loop to loop: each does its own, in
// its own time. Then the session goes on that has asked. Whoever has
// it in hand owns it: the loops pass it on through their mailboxes.
type rollCall struct {
	asker *Session
	grant *Grant // of the asker, nil if it may see all
	form  entryForm

	sessions []*Session
	loops    []*Loop // to be visited, the present one first; none when the asker's turn has come
	next     int     // of sessions, for the present loop

	kicks  bool // it ends sessions instead
	kicked bool // one of them was open

	texts []span // of each session; empty for those that have gone or are not the asker's business
	text  []byte
	pos   journal.Pos // that the texts depend on
}

// span is a part of rollCall.text.
type span struct{ from, to int }

// callRoll asks the loops of sessions to describe them. When they have, s is resumed with t.
func (s *Session) callRoll(c *rollCall, t task) Outcome {
	c.asker = s
	if s.client.Flags&restricted != 0 {
		c.grant = s.wait.grant.Grant
	}
	c.texts = make([]span, len(c.sessions))
	has := make(map[*Loop]struct{})
	for _, o := range c.sessions {
		if _, twice := has[o.loop]; !twice {
			has[o.loop] = struct{}{}
			c.loops = append(c.loops, o.loop)
		}
	}
	s.waiter().task = t
	c.goOn(s.loop)
	return Wait
}

// goOn gives the call to the loop whose turn is next. It is called on the goroutine of
// the loop `on`, or, with nil, on one that is no loop's.
func (c *rollCall) goOn(on *Loop) {
	to := c.asker.loop
	if len(c.loops) > 0 {
		to = c.loops[0]
	}
	to.mail.mu.Lock()
	to.mail.calls = append(to.mail.calls, c)
	if to.unlockMail() && to != on {
		to.waker.Wake()
	}
}

// answerCall does a slice of the first call: it describes sessions of the loop for others,
// or queues the asker.
func (l *Loop) answerCall(now Time) {
	c := l.calls.First()
	if len(c.loops) > 0 && !c.visit(l, now) {
		return
	}
	l.calls.Pop()
	if len(c.loops) > 0 {
		c.loops = c.loops[1:]
		c.goOn(l)
	} else if c.asker.client.Flags&isOpen != 0 {
		l.turns.Push(c.asker)
	}
}

const (
	callSlice = 16 // sessions that are described before others have their turn
	entryCost = 8  // to describe one
)

// visit describes some sessions of the loop, or ends them. It returns true when all are.
func (c *rollCall) visit(l *Loop, now Time) (done bool) {
	for n := 0; c.next < len(c.sessions); c.next++ {
		s := c.sessions[c.next]
		if s.loop != l {
			continue
		}
		if n == callSlice || l.budget <= 0 {
			return false
		}
		n++
		l.budget -= entryCost
		if s.client.Flags&isOpen == 0 || c.grant != nil && !c.grant.shows(s) {
			continue
		}
		if c.kicks {
			c.kick(s, now)
			continue
		}
		from := len(c.text)
		var pos journal.Pos
		c.text, pos = s.appendEntry(c.text, &c.form, now)
		c.pos = max(c.pos, pos)
		c.texts[c.next] = span{from, len(c.text)}
	}
	c.next = 0
	return true
}

// kick ends a session of the present loop, if somebody carries it.
func (c *rollCall) kick(s *Session, now Time) {
	if p := s.loop.peers; p != nil {
		p.Disconnect(s, now)
		c.kicked = true
	}
}

// peerAddr is the address at the other end of a session's connection.
func (l *Loop) peerAddr(s *Session) string {
	if l.peers == nil {
		return ""
	}
	return l.peers.PeerAddr(s)
}

// via is the name of the member through which the client of a session comes, "" for one of this server's.
func (l *Loop) via(s *Session) string {
	if l.peers == nil {
		return ""
	}
	return l.peers.Via(s)
}
