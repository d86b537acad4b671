package engine

import (
	"math/bits"
	"sync/atomic"

	"trellis/binlog/journal"
)

// Owner is a connection as its session sees it.
type Owner interface {
	// Wake says that the session's wait has ended: the owner calls Resume, at
	// once or later. It is called on the loop's goroutine, from Deliver and
	// Expire, at most once for each Outcome Wait.
	Wake(now Time)
}

// Outcome says how a session goes on.
type Outcome uint8

const (
	// Done: the next command can be executed. The reply, if the command has
	// one, stands in the Output.
	Done Outcome = iota
	// Wait: the session waits for a job. Nothing may be executed for it until
	// its owner was woken and Resume returned Done.
	Wait
	// Yield: the command takes so long that others should have a turn. Nothing
	// may be executed for the session until Resume, called when they had one, has
	// returned Done.
	Yield
	// Quit: the connection is to be closed after what stands in the Output was sent.
	Quit
)

// Output is where replies go.
type Output struct {
	// Buf is appended to. The owner empties it and may use its memory again.
	Buf []byte
	// Pos is the place in the journal that the replies depend on: they must not
	// be sent before the journal is committed up to there. It only grows; the
	// owner sets it back to 0.
	Pos journal.Pos
}

// Session is one client's state: the tube that it uses, those that it watches,
// what it has reserved. It knows nothing of what carries it. All methods are for
// the goroutine of its loop. Others touch only its claim, and while they hold
// it claimed, what a job's hand-over needs.
//
// The zero Session is ready for [Loop.Open].
type Session struct {
	loop     *Loop
	owner    Owner
	used     *tube
	watched  []watch    // never empty while open; does not change while the session waits
	holdings []*holding // one a shard, made with the first reservation there
	wait     *wait      // made with the first wait, or long command
	incoming *incoming  // the put whose body is arriving, or nil

	claim   atomic.Uint32
	turn    uint32 // of the next reservation; see tally
	watches shardSet
	holds   shardSet
	flags   uint8
}

// shardSet has a bit for each shard.
type shardSet uint16

const (
	isOpen uint8 = 1 << iota
	isProducer
	isWorker
	halfClosed // the peer will send no more: a reserve does not wait
)

// A session's claim decides who ends its wait. It is free, or the session
// waits, or a goroutine has taken it by the one step from waiting to claimed. A
// goroutine that claims it in order to hand a job over owns the session until
// the loop has found it in its mailbox.
const (
	claimFree uint32 = iota
	claimWaiting
	claimTaken
)

// watch is a session's interest in one tube. While the session waits, it stands
// in the tube's queue of waiting sessions; the shard's lock guards that.
type watch struct {
	session    *Session
	tube       *tube
	next, prev *watch
}

// wait is what a waiting session needs beyond the others, and one in the middle of
// a long command.
type wait struct {
	session *Session
	timer   timer // in the loop's wheel
	since   Time  // when the wait began
	until   Time  // when the client's time-out ends
	soon    Time  // when the safety margin of one of its jobs begins
	// The job that was handed over: written by the claimer.
	shard *shard
	id    uint64
	pos   journal.Pos // in the journal that the reply depends on
	// How the wait ended, when not by a job.
	verdict verdict

	kick    kicking  // what is left of a kick that has yielded
	listing *listing // what there is of a list that has yielded
}

type verdict uint8

const (
	noVerdict verdict = iota
	timedOut
	deadlineSoon
)

// safetyMargin is the last part of a job's time to run, during which its holder
// is not made to wait for another job.
const safetyMargin = second

// Open starts a session on the loop: it uses and watches the default tube. o
// is woken when a wait ends.
func (l *Loop) Open(s *Session, o Owner, now Time) {
	s.loop, s.owner = l, o
	s.flags = isOpen
	sh := l.engine.defaultShard
	sh.lock(&l.caller, now)
	t := sh.byName[defaultTube]
	t.using++
	t.watching++
	sh.unlock(&l.caller)
	s.used = t
	s.watched = []watch{{session: s, tube: t}}
	s.watches = 1 << sh.number
	l.counts.opened.Add(1)
	l.counts.sessions.Add(1)
}

// Close ends the session: what it has reserved becomes ready at once, and its
// tubes lose it. Its owner is not woken any more.
func (s *Session) Close(now Time) {
	if s.flags&isOpen == 0 {
		return
	}
	s.flags &^= isOpen
	l := s.loop
	l.counts.sessions.Add(-1)
	if s.flags&isProducer != 0 {
		l.counts.producers.Add(-1)
	}
	if s.flags&isWorker != 0 {
		l.counts.workers.Add(-1)
	}
	if s.claim.Load() != claimFree && !s.stopWaiting(now) {
		return // a job is on its way: handed finishes what is left
	}
	s.leave(now)
}

// Reserves tells whether the session has reserved a job. It takes the lock of
// each shard in which it ever has.
func (s *Session) Reserves(now Time) bool {
	c := &s.loop.caller
	for _, h := range s.holdings {
		h.shard.lock(c, now)
		n := len(h.jobs)
		h.shard.unlock(c)
		if n > 0 {
			return true
		}
	}
	return false
}

// leave undoes all that other sessions can see of this one.
func (s *Session) leave(now Time) {
	c := &s.loop.caller
	s.dropIncoming(now)
	s.giveBack(now)
	// Each step takes the first tube and moves the last one to its place, which
	// shows in the order of list-tubes.
	for len(s.watched) > 0 {
		last := len(s.watched) - 1
		t := s.watched[0].tube
		s.watched[0] = s.watched[last]
		s.watched = s.watched[:last]
		t.shard.lock(c, now)
		t.watching--
		t.shard.dropIfUnused(t)
		t.shard.unlock(c)
	}
	s.watched = nil
	sh := s.used.shard
	sh.lock(c, now)
	s.used.using--
	sh.dropIfUnused(s.used)
	sh.unlock(c)
	s.used, s.wait = nil, nil
}

// HalfClose says that the peer will send nothing more. A reserve that waits is
// answered TIMED_OUT, and none will wait from now on. When a job is just being
// handed over it returns Wait, and Wake follows.
func (s *Session) HalfClose(now Time, out *Output) Outcome {
	s.flags |= halfClosed
	if s.claim.Load() == claimFree {
		return Done
	}
	if !s.stopWaiting(now) {
		return Wait
	}
	out.Buf = appendVerdict(out.Buf, timedOut)
	return Done
}

// lockAll takes the locks of a set of shards, in order.
func (s *Session) lockAll(set shardSet, now Time) {
	for ; set != 0; set &= set - 1 {
		s.loop.engine.shards[bits.TrailingZeros16(uint16(set))].lock(&s.loop.caller, now)
	}
}

func (s *Session) unlockAll(set shardSet) {
	for ; set != 0; set &= set - 1 {
		s.loop.engine.shards[bits.TrailingZeros16(uint16(set))].unlock(&s.loop.caller)
	}
}
