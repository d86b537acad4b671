package engine

import (
	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/loads"
	"trellis/engine/internal/queue"
	"trellis/engine/internal/reply"
	"trellis/engine/internal/shard"
)

// Outcome says how a session goes on.
type Outcome uint8

const (
	// Done: the next command can be executed. The reply, if the command has
	// one, stands in the Output.
	Done Outcome = iota
	// Wait: the command is not finished. Nothing may be executed for the session
	// until Next has returned it and Resume has returned Done. The Output
	// may hold the first part of a long reply; Resume is to be called when the
	// client has taken that.
	Wait
	// Quit: the connection is to be closed after what stands in the Output was sent.
	Quit
)

// Session is one client's state: the tube that it uses, those that it watches,
// what it has reserved. It knows nothing of what carries it. All methods are for
// the goroutine of its loop. Others touch only its claim, and while they hold
// it claimed, what a job's hand-over needs.
//
// The zero Session is ready for [Loop.Open].
type Session struct {
	loop     *Loop
	client   shard.Client
	wait     *wait           // made when a command, or a close, is not finished at once, or for a restricted session
	incoming *shard.Incoming // the put whose body is arriving, or that waits for room in the journal, or nil

	id                uint64 // its place in lists of sessions
	opened            Time
	commands          uint64 // well-formed ones
	bytesIn, bytesOut uint64 // of commands and replies
}

// Bits of client.Flags.
const (
	isOpen    uint16 = 1 << iota
	isClosing        // closed, and not all that others can see of it is undone
	isProducer
	isWorker
	isWaiting  // its command is not finished
	halfClosed // the peer will send no more: a reserve does not wait
	restricted // wait.grant says what it may do
	onRecord   // its reservations are on record, by reserved.holder
	hasWeights // loop.weights has them
	isWeighted // and its reserves choose by them
	isInformed // it is told more of each job that it reserves
	parts      // it leaves what it has reserved to an absent session of its id
	isGhost    // nobody carries it: it gives back what an absent session held
	isAged     // its client has waited since wait.since for what it sends next
	aborts     // its wait for a job ends when the client sends more
	saidQuit   // the client has: it has not lost its connection

	special = restricted | onRecord | isAged // other sessions just execute their commands
)

// Open starts a session on the loop: it uses and watches the default tube.
func (l *Loop) Open(s *Session, now Time) { l.open(s, true, now) }

// open starts a session that uses and watches the default tube or, without a right to that, the empty one of its name.
// It starts none, and returns false, if there is another one of the session's id.
func (l *Loop) open(s *Session, mayDefault bool, now Time) bool {
	s.loop, s.opened = l, now
	if s.id == 0 && l.number != 0 {
		s.id = l.newID()
	}
	if !l.engine.roll.add(s) {
		*s = Session{}
		return false
	}
	s.client.Flags = isOpen
	l.tx.Arrive(now, &s.client, (*claimant)(s), mayDefault)
	l.counts.opened.Add(1)
	l.counts.sessions.Add(1)
	return true
}

// Received notes that n bytes of commands have come from the client.
func (s *Session) Received(n int) { s.bytesIn += uint64(n) }

// Execute executes one command of the session's client and appends the reply to
// out. No command of the session may be unfinished.
func (s *Session) Execute(now Time, cmd *codec.Command, out *Output) Outcome {
	s.counted(cmd, out)
	var outcome Outcome
	if s.client.Flags&special == 0 {
		outcome = s.execute(now, cmd, out)
	} else {
		var denied bool
		if outcome, denied = s.executeSpecial(now, cmd, out); denied {
			return outcome
		}
	}
	s.executed(outcome, out)
	return outcome
}

// executeSpecial is execute for a session that has one of the flags in special.
func (s *Session) executeSpecial(now Time, cmd *codec.Command, out *Output) (outcome Outcome, denied bool) {
	if s.client.Flags&restricted != 0 {
		if outcome, denied = s.restrict(now, cmd, out); denied {
			return outcome, true
		}
	}
	if s.client.Flags&onRecord != 0 {
		out.ExecutesFor(s.client.Source())
	}
	outcome = s.execute(now, cmd, out)
	out.ExecutesFor(nil)
	if s.client.Flags&isAged != 0 {
		s.client.Flags &^= isAged
		if outcome == Wait && s.wait.task == nil {
			s.wait.hasLasted(now)
		}
	}
	return outcome, false
}

// counted counts a command that is executed.
func (s *Session) counted(cmd *codec.Command, out *Output) {
	if cmd.CountAs < codec.NumCommands {
		s.loop.counts.commands[cmd.CountAs].Add(1)
		s.commands++
	}
	s.loop.budget--
	if !ownOps[cmd.Op] {
		out.ShowsState()
	}
}

// executed notes how a command has ended, or that it has not.
func (s *Session) executed(outcome Outcome, out *Output) {
	if outcome == Wait {
		s.client.Flags |= isWaiting
		out.Waits()
	}
}

// Resume goes on with a command that was not finished, after Next has returned the
// session.
func (s *Session) Resume(now Time, out *Output) Outcome {
	out.ShowsState()
	if s.client.Flags&onRecord != 0 {
		out.ExecutesFor(s.client.Source())
	}
	outcome := s.resume(now, out)
	out.ExecutesFor(nil)
	if outcome == Wait {
		s.client.Flags &^= isAged
		out.Waits()
	} else {
		s.client.Flags &^= isAged | isWaiting
	}
	return outcome
}

func (s *Session) resume(now Time, out *Output) Outcome {
	w := s.wait
	if load := w.load; load != nil {
		w.load = nil
		s.loop.wheel.Cancel(&w.timer)
		outcome := s.resume(now, out)
		switch {
		case w.load == load: // it waits for more
		case outcome == Wait && w.load == nil && w.task != nil:
			w.load = load // until the task is done the bodies stay in memory
		default:
			load.Leave()
		}
		return outcome
	}
	if t := w.task; t != nil {
		w.task = nil
		return t.turn(s, now, out)
	}
	return s.endWait(now, out)
}

// goOn prepares a session from its loop's queue for Resume, or goes on with closing it.
// It returns false when Next is not to return the session.
func (s *Session) goOn(now Time) bool {
	if s.client.IsClaimed() {
		s.handed(now)
	}
	if s.client.Flags&isOpen == 0 {
		return s.finishClose(now) && s.client.Flags&isGhost == 0
	}
	return true
}

// HalfClose says that the peer will send nothing more. A reserve that waits for a job
// is answered TIMED_OUT, and none will wait from now on. It returns Wait while a
// command is not finished.
func (s *Session) HalfClose(now Time, out *Output) Outcome {
	s.client.Flags |= halfClosed
	if s.client.Flags&isWaiting == 0 {
		return Done
	}
	return s.abort(now, out)
}

// Interrupt says that the client has sent more while a command is not finished. If the client has asked for that, a
// reserve that waits for a job is answered TIMED_OUT, unless somebody is handing a job over. It returns Wait while the
// command is not finished.
func (s *Session) Interrupt(now Time, out *Output) Outcome {
	if s.client.Flags&aborts == 0 {
		return Wait
	}
	return s.abort(now, out)
}

// abort ends a wait for a job, if that is what the session's command, which is not finished, waits for.
func (s *Session) abort(now Time, out *Output) Outcome {
	if !s.stopWaiting(now) {
		return Wait
	}
	s.client.Flags &^= isWaiting
	out.ShowsState()
	out.DependOn(s.wait.pos)
	s.answerNone(out, reply.ErrTimedOut, int(s.wait.batch))
	return Done
}

// Reserves reports whether the session has reserved a job. It takes the lock of
// each shard in which it ever has.
func (s *Session) Reserves(now Time) bool { return s.loop.tx.CountReserved(now, &s.client, 1) > 0 }

// wait is what a session needs whose command, or close, is not finished, or that is
// restricted. What is here costs others nothing.
type wait struct {
	session *Session
	grant   *grantee    // of a restricted session
	task    task        // what Resume goes on with; nil while the session waits for a job, or for the body of one
	load    *loads.Wait // what it waits for, if that is bodies; otherwise nil
	timer   queue.Timer // of a session that waits for a job, or for bodies, in the loop's wheel
	since   Time        // when the wait for a job began
	until   Time        // when the client's time-out ends
	soon    Time        // when the safety margin of one of its jobs begins
	id      uint64      // of the job that was handed over: written by the claimer; 0 for none
	pos     journal.Pos // that the reply depends on: written by the claimer, or when the wait ends without a job
	// How the wait ended, when not by a job; byJob while it has not.
	end       waitEnd
	batch     uint16 // jobs that the reserve asks for, if it is a reserve-batch; 0 if it is not
	putDenied bool   // it has no right to the put whose body is arriving, and is discarded
}

// A task is a command that is not finished in one go, because it takes long or has
// to wait for room in the journal. Its turn does some of it.
type task interface {
	turn(s *Session, now Time, out *Output) Outcome
}

// waiter returns s.wait, which it makes if need be.
func (s *Session) waiter() *wait {
	if s.wait == nil {
		s.wait = &wait{session: s}
		s.wait.timer.Owner = s.wait
	}
	return s.wait
}

// yield queues the session: it goes on with a task when others had their turn.
func (s *Session) yield(t task) Outcome {
	s.waiter().task = t
	s.loop.turns.Push(s)
	return Wait
}

// awaited is the wait for bodies that an operation has returned, nil if err is another one.
func awaited(err error) *loads.Wait {
	w, _ := err.(*loads.Wait) // it is never wrapped
	return w
}

// How long bodies are waited for: after lateLoad that is counted, after lateLoad and deadLoad given up.
const (
	lateLoad = clock.Second
	deadLoad = 9 * clock.Second
)

// park makes the session go on with a task, nil for a reserve, when bodies were loaded.
func (s *Session) park(now Time, t task, load *loads.Wait) Outcome {
	w := s.waiter()
	w.task, w.load = t, load
	s.loop.schedule(&w.timer, now+lateLoad, now)
	return Wait
}

// overdue is called when the session has waited for bodies for long.
func (w *wait) overdue(now Time) {
	if w.load.Late() {
		w.session.loop.schedule(&w.timer, now+deadLoad, now)
	} else {
		w.load.GiveUp()
	}
}

// leaveLoads ends a wait for bodies, whoever is to go on or not.
func (s *Session) leaveLoads() {
	if s.wait != nil && s.wait.load != nil {
		s.wait.load.Leave()
		s.wait.load = nil
		s.loop.wheel.Cancel(&s.wait.timer)
	}
}

// awaitRoom makes the session go on with a task when the journal may have room for it.
func (s *Session) awaitRoom(t task) Outcome {
	s.waiter().task = t
	s.loop.starve(s)
	return Wait
}

// starve makes a session try again when the journal may have room.
func (l *Loop) starve(s *Session) {
	if l.starving.Load() {
		l.starved = append(l.starved, s)
		return
	}
	// Room may have been called before it could see that somebody starves: try once more.
	l.starving.Store(true)
	l.turns.Push(s)
}

// retry is a command that has changed nothing yet and is executed again. Its Tube and
// Body are nil, because their memory is not the command's any more.
type retry codec.Command

func (r *retry) turn(s *Session, now Time, out *Output) Outcome {
	return s.execute(now, (*codec.Command)(r), out)
}
