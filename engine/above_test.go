package engine

import (
	"hash/maphash"
	"iter"
	"maps"
	"reflect"

	"trellis/codec"
	"trellis/engine/internal/queue"
)

// What tests that look into shards see of loops and sessions besides their methods. Nothing else in these tests knows
// how either is made.

// newEngine makes an engine that places tubes by seed.
func newEngine(cfg Config, seed maphash.Seed) *Engine {
	cfg.seed = seed
	return New(cfg)
}

// by is how the loop works with shards.
func (l *Loop) by() *tx { return &l.tx }

// allow leaves the loop so many steps of its round.
func (l *Loop) allow(steps int) { l.Spend(l.Left() - steps) }

// meet makes the loop meet deadlines at that time, as if one had come.
func (l *Loop) meet(at Time) { l.request(at) }

// wakesAt is when the loop's own wheel is to be advanced.
func (l *Loop) wakesAt() Time { return l.due }

// timers are those of sessions that wait.
func (l *Loop) timers() *queue.Wheel { return &l.wheel }

// canGoOn are the sessions that Next returns, in their order, besides those in the mailbox.
func (l *Loop) canGoOn() []*Session { return l.turns.All() }

// mailbox are the claimed sessions in the loop's mailbox. Calls are there besides; hasMail is what the loop reads
// without a lock, and rung that somebody has asked it to look.
func (l *Loop) mailbox() (list []*Session, calls int, hasMail, rung bool) {
	return l.mail.list, len(l.mail.calls), l.hasMail.Load(), l.mail.woken
}

// weighted are the sessions that have weights.
func (l *Loop) weighted() iter.Seq[*Session] { return maps.Keys(l.weights) }

// sessionCounts are counts of open sessions.
type sessionCounts struct{ sessions, producers, workers, waiting int64 }

// sessionCounts are those of the loop's.
func (l *Loop) sessionCounts() sessionCounts {
	n := &l.counts
	return sessionCounts{n.sessions.Load(), n.producers.Load(), n.workers.Load(), n.waiting.Load()}
}

// countNoCommand says that a command that the session has executed is no new one.
func (l *Loop) countNoCommand(s *Session, op codec.Op) {
	s.commands--
	l.counts.commands[op].Add(^uint64(0))
}

// clientOf is the session in the sight of shards.
func clientOf(s *Session) *client { return &s.client }

// sessionOf is the session of one that stands in queues.
func sessionOf(w waiter) *Session { return (*Session)(w.(*claimant)) }

// doer is the session of which a deed tells.
func doer(d Deed) *Session { return d.from.(*Session) }

func (s *Session) number() uint64         { return s.id }
func (s *Session) incomingPut() *incoming { return s.incoming }
func (s *Session) isIn(l *Loop) bool      { return s.loop == l }
func (s *Session) weights() *weights      { return s.loop.weights[s] }

// isBusy reports whether the session waits in a command that is not a wait for a job.
func (s *Session) isBusy() bool { return s.wait != nil && s.wait.task != nil }

// handedJob is the job that ended the session's last wait, 0 if none did.
func (s *Session) handedJob() uint64 {
	if s.wait == nil {
		return 0
	}
	return s.wait.id
}

// timer is that of the session's wait for a job, and when it is needed; nil if it has not waited.
func (s *Session) timer() (t *queue.Timer, at Time) {
	if s.wait == nil {
		return nil, MaxTime
	}
	return &s.wait.timer, min(s.wait.until, s.wait.soon)
}

// waitLine is the command that the session on record waits in, as another server is told of it.
func (s *Session) waitLine() []byte {
	same := new(Session)
	reflect.ValueOf(same).Elem().Set(reflect.ValueOf(s).Elem())
	d, ok := same.DetachRecorded()
	if !ok {
		return nil
	}
	return d.Wait()
}

// closingTask is what a closed session has still to give back.
func (s *Session) closingTask() *closing { return s.loop.tx.closings[&s.client] }

// A history is what a session's loop knows of it besides what other servers are told.
type history struct {
	since, opened     Time
	commands          uint64
	bytesIn, bytesOut uint64
	chosen            uint64 // how it has chosen by its weights
	flags             uint16
	grant             *Grant
	listed            listEnd
}

func (s *Session) history() *history {
	h := &history{
		opened: s.opened, commands: s.commands, bytesIn: s.bytesIn, bytesOut: s.bytesOut, flags: s.client.flags,
		listed: s.loop.tx.listEnds[&s.client],
	}
	if w := s.wait; w != nil {
		h.since = w.since
	}
	if s.client.flags&restricted != 0 {
		h.grant = s.wait.grant.Grant
	}
	if w := s.weights(); w != nil {
		h.chosen = w.at
	}
	return h
}

// remember gives a session that goes on its history, by whose times its engine's are later.
func (s *Session) remember(h *history, by Time) {
	s.opened, s.commands, s.bytesIn, s.bytesOut = h.opened+by, h.commands, h.bytesIn, h.bytesOut
	if h.flags&isProducer != 0 {
		s.becomeProducer()
	}
	if h.flags&isWorker != 0 {
		s.becomeWorker()
	}
	if w := s.weights(); w != nil {
		w.at = h.chosen
	}
	l := s.loop
	l.counts.opened.Add(-1) // it is no new one
	if h.listed != (listEnd{}) {
		if l.tx.listEnds == nil {
			l.tx.listEnds = make(map[*client]listEnd)
		}
		l.tx.listEnds[&s.client] = h.listed
	}
}

// A pageOfRoll is a page of the engine's roll: n sessions, and room for others.
type pageOfRoll struct {
	n        int
	sessions []*Session
}

// rollPages are the pages of the roll, and the last id that it has given.
func (e *Engine) rollPages() (list []pageOfRoll, lastID uint64) {
	for _, p := range e.roll.pages {
		list = append(list, pageOfRoll{p.n, p.sessions[:]})
	}
	return list, e.roll.lastID
}

// onRoll are the sessions on the roll.
func (e *Engine) onRoll() (list []*Session) {
	pages, _ := e.rollPages()
	for _, p := range pages {
		list = append(list, p.sessions[:p.n]...)
	}
	return list
}
