package engine

import (
	"trellis/engine/internal/shard"
	"trellis/engine/internal/weights"
)

// A Detached is a session without an engine: what its client has asked for. It has no job. With it
// the client goes on in another engine that has the same jobs, and notices nothing.
type Detached struct {
	id                uint64 // of a session on record, whose jobs stay reserved; 0 for another one
	offset            uint64 // of a session on record: no record has told of a command that ends behind it
	grant             *Grant // nil if the client may do everything
	used              string
	watched           []string
	flags             uint16
	weights           *weights.Weights // of a session that has some
	opened            Time
	commands          uint64
	bytesIn, bytesOut uint64

	until, since Time // of a wait for a job
	age          Time // for how long a client has waited for what it sends next
	batch        uint16
	handed       uint64 // the job that has ended the wait, and of which the client was not told; 0 for none

	again task // a command that waits for room in the journal, and is to be executed again; nil without one

	incoming  *shard.Incoming // a put whose body is arriving, or nil
	putDenied bool            // the client has no right to the put whose body is arriving
	arrived   []byte          // of that body; nothing if it is discarded
}

// carried are the flags that a session keeps. The others say what it has in the engine.
const carried = isProducer | isWorker | isWaiting | halfClosed | hasWeights | isWeighted | isInformed | aborts | isAged

// WaitsSince is when the session began to wait for a job, by the time of its engine. It is MaxTime
// for a session that does not wait.
func (d *Detached) WaitsSince() Time {
	if d.flags&isWaiting == 0 {
		return MaxTime
	}
	return d.since
}

// Size is how many bytes of a body it keeps.
func (d *Detached) Size() int { return len(d.arrived) }

// Detach takes a session out of an engine that is held (see [Engine.Hold]), and to which nothing is
// to be done afterwards but Discard. The session is as new. A job that was handed over to it, and of
// which its client was not told, counts as not handed over. Detach reports false, and leaves the
// session as it is, if the client has a job, or has had a part of a command executed whose rest
// is to come, or is on record: it cannot go on.
func (s *Session) Detach() (d *Detached, ok bool) {
	return s.detachIf(s.client.Flags&onRecord == 0 && !s.Begun() && !s.holds())
}

// Begun reports whether the session waits in a command of which a part may have been executed.
func (s *Session) Begun() bool {
	if s.wait == nil {
		return false
	}
	switch s.wait.task.(type) {
	case nil, *retry, *peeking:
		return false
	case putting:
		return s.incoming.OnRecord()
	}
	return true
}

// ending is a put that is done anew when all of its body has come.
type ending struct{}

func (ending) turn(s *Session, now Time, out *Output) Outcome { return s.putEnd(now, true, out) }

// DetachRecorded is Detach for a session on record, which goes on with all that it holds, and with a job that was
// handed over to it.
func (s *Session) DetachRecorded() (d *Detached, ok bool) {
	if s.client.Flags&onRecord == 0 || s.Begun() {
		return nil, false
	}
	handed := s.handedOver()
	d, ok = s.detachIf(true)
	d.handed = handed
	return d, ok
}

// handedOver is the job that the session was handed over, and has, if its client was not told of it; 0 for none.
func (s *Session) handedOver() (id uint64) {
	w := s.wait
	if w == nil || w.id == 0 || !s.loop.tx.HasReserved(0, &s.client, w.id) {
		return 0
	}
	return w.id
}

func (s *Session) detachIf(can bool) (d *Detached, ok bool) {
	if can {
		s.leaveLoads()
		d = s.detached()
		*s = Session{}
	}
	return d, can
}

// detached is the session as it is, without what it holds.
func (s *Session) detached() *Detached {
	w := s.wait
	d := &Detached{
		used: s.client.TubeUsed(), flags: s.client.Flags & carried, weights: s.loop.weights[s],
		opened: s.opened, commands: s.commands, bytesIn: s.bytesIn, bytesOut: s.bytesOut,
	}
	if s.client.Flags&onRecord != 0 {
		d.id, d.offset = s.id, s.client.Source().Offset
	}
	for i := range s.client.Watching() {
		d.watched = append(d.watched, s.client.TubeWatched(i))
	}
	if s.client.Flags&restricted != 0 {
		d.grant, d.putDenied = w.grant.Grant, w.putDenied
	}
	if s.client.Flags&(isWaiting|isAged) != 0 {
		d.until, d.since, d.batch = w.until, w.since, w.batch
	}
	if w != nil && w.task != nil {
		d.again, d.flags = w.task, d.flags&^isWaiting
		if _, ok := w.task.(putting); ok {
			d.again = ending{}
		}
	}
	if in := s.incoming; in != nil {
		d.incoming, d.arrived = in.Detach()
	}
	return d
}

// holds reports whether the client was told of a job that the session has reserved.
func (s *Session) holds() bool {
	n := s.loop.tx.CountReserved(0, &s.client, 2)
	if n == 1 && s.handedOver() != 0 {
		n--
	}
	return n > 0
}

// Attach opens a session on the loop in place of one that was detached. Times of the engine of then
// are by so much less than those of this one. A session that waited is to be resumed. The client's account has it,
// however many connections it may have. Attach opens none, and returns false, if there is one of its id.
func (l *Loop) Attach(s *Session, d *Detached, by, now Time) bool {
	return l.GoOn(s, d, by, now) == nil
}

// GoOn is Attach, and says why there is no session, as OpenAs does. A session that was absent has what it
// held, without a look at any of that. Records do not tell which of its commands have made them, until
// CommandEnds has said where one ends.
func (l *Loop) GoOn(s *Session, d *Detached, by, now Time) error {
	var err error
	switch {
	case d.id != 0:
		err = l.openAs(s, d.id, d.grant, true, now)
	case d.grant != nil:
		err = l.openGranted(s, d.grant, true, now)
	default:
		l.Open(s, now)
	}
	if err != nil {
		return err
	}
	l.restore(s, d, by, now)
	return nil
}

// restore gives a session that was just opened what a detached one had.
func (l *Loop) restore(s *Session, d *Detached, by, now Time) {
	if d.opened != Always {
		s.opened = d.opened + by
	}
	s.commands = d.commands
	s.bytesIn, s.bytesOut = s.bytesIn+d.bytesIn, d.bytesOut
	s.client.Flags |= d.flags &^ (isProducer | isWorker)
	if d.weights != nil {
		l.weigh(s, d.weights)
	}
	if d.flags&isProducer != 0 {
		s.becomeProducer()
	}
	if d.flags&isWorker != 0 {
		s.becomeWorker()
	}
	l.tx.GoBackTo(now, &s.client, d.used, d.watched)
	if s.client.Flags&isWaiting != 0 {
		w := s.waiter()
		w.until, w.since, w.batch = d.until, d.since+by, d.batch
		s.client.Flags |= isAged
		if w.until != MaxTime {
			w.until += by
		}
		if d.handed != 0 {
			s.isHanded(d.handed, now)
		}
	}
	if d.putDenied {
		s.waiter().putDenied = true
	}
	if d.incoming != nil {
		s.incoming = l.tx.AttachPut(now, &s.client, d.incoming, d.arrived)
	}
	if d.again != nil {
		s.client.Flags |= isWaiting
		s.waiter().task = d.again
	}
	if d.flags&isAged != 0 {
		s.waiter().since = d.since + by
	}
	if s.client.Flags&onRecord != 0 {
		s.executes(d.offset, true)
	}
	if d.age > 0 {
		s.waiter().since = now - d.age
		s.client.Flags |= isAged
	}
}

// isHanded says that a job was handed over to a session that waits: it has the job, unless that has gone.
func (s *Session) isHanded(id uint64, now Time) {
	if s.loop.tx.HasReserved(now, &s.client, id) {
		s.wait.id, s.wait.pos = id, 0
	}
}
