package engine

import (
	"sync"
	"sync/atomic"

	"trellis/codec"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/fifo"
	"trellis/engine/internal/loads"
	"trellis/engine/internal/queue"
	"trellis/engine/internal/shard"
	"trellis/engine/internal/weights"
)

// A Carrier is a Waker that knows the connections of its loop's sessions. It is called on
// the loop's goroutine.
type Carrier interface {
	// PeerAddr returns the address at the other end of a session's connection, "" if it
	// cannot be told.
	PeerAddr(s *Session) string
	// Via returns the name of the member through which the client of a session comes, "" for a
	// client that is connected to this server.
	Via(s *Session) string
	// Disconnect closes a session of the loop, which is open, and ends its connection. It
	// must not have the loop or the session do anything else.
	Disconnect(s *Session, now Time)
	// Denied is told of a command that was denied to the client of a session. It returns true if
	// another server, to which the client is connected, tells its own [Config].Audit.
	Denied(s *Session, d *Deed) bool
	// TokenSent is told that the client of a session has sent what looks as a token where the
	// name of a tube is wanted.
	TokenSent(s *Session)
}

// Loop is the engine's side of one event loop: the sessions that the loop serves,
// their time-outs, the deadlines of some shards, and the mailbox through which other
// goroutines tell it that one of its sessions got a job. All methods are for the
// loop's goroutine, except where they say otherwise. Make one with [Engine.NewLoop]. The zero Loop has
// no engine: Refill, Spend, Left and Busy keep a round's account, and no other method is called.
type Loop struct {
	engine *Engine
	waker  Waker
	peers  Carrier // the waker, if it is a Carrier; otherwise nil
	tx     shard.Tx
	budget int // what is left of this round, in units of cost

	// What has had its share of this round. The rest waits for others, or for the next round.
	behind   bool // deadlines are left: sessions that can go on come first
	gaveBack bool // memory was given back

	// turns has the sessions that can go on, or have something left to do, first
	// come, first served.
	turns fifo.Queue[*Session]

	// alarm is the time for which Waker.Alarm was called last, MaxTime when that has
	// come. Anybody may read it.
	alarm   atomic.Int64
	alarmMu sync.Mutex  // held to write alarm; taken last
	shards  []int       // whose deadlines are met here; guarded by Engine.loopsMu, and replaced as a whole
	next    int         // the shard to begin with when deadlines are met
	wheel   queue.Wheel // of waiting sessions' time-outs
	due     Time        // when wheel wants to be advanced

	mail struct {
		mu    sync.Mutex
		list  []*Session  // claimed sessions, in the order of their claims
		calls []*rollCall // that are passed on to this loop
		loads []loaded    // waits for bodies that have ended
		woken bool        // the loop has been asked to look, or will without being asked
	}
	hasMail atomic.Bool // mail.list or mail.calls is not empty
	taken   []*Session  // the spare slice for mail.list

	calls fifo.Queue[*rollCall] // taken out of mail.calls

	// Sessions whose command found no room in the journal.
	starved  []*Session
	starving atomic.Bool // there were some once, so that Engine.Room wakes it. Only the loop writes it
	fed      atomic.Bool // Engine.Room was called since they starved

	weights map[*Session]*weights.Weights // of the sessions that have some

	number   uint32 // of the ids of sessions that are opened without one; 0 for none
	sessions uint64 // that have had one of its ids

	scratch []byte // for statistics, whose length goes first in the reply

	counts loopCounts
}

// loopCounts are written by the loop, waiting also by whoever claims one of its
// sessions; anybody may read them.
type loopCounts struct {
	commands                                      [codec.NumCommands]atomic.Uint64
	opened, sessions, producers, workers, waiting atomic.Int64
}

// A round is what a loop does between two polls for input. Its budget is counted in units of
// cost (4,096 are about 1 ms), so tests need no clock.
const (
	roundBudget = 4096

	wakeCost   = 32 // to wake a session: its reply is a write of its own, of about 8 µs
	expireCost = 4  // to end a session's wait
)

// NewLoop adds an event loop to the engine, which divides the shards' deadlines among
// its loops anew. Any goroutine may call it.
func (e *Engine) NewLoop(waker Waker) *Loop {
	l := &Loop{engine: e, waker: waker, due: MaxTime, budget: roundBudget}
	l.alarm.Store(int64(MaxTime))
	l.tx.Begin(&e.Shards, &l.budget, waker)
	l.peers, _ = waker.(Carrier)
	e.loopsMu.Lock()
	defer e.loopsMu.Unlock()
	e.loops = append(e.loops, l)
	for _, l := range e.loops {
		l.shards = nil
	}
	for i := range e.config.Shards {
		l := e.loops[i%len(e.loops)]
		l.shards = append(l.shards, i)
		e.AlarmBy(i, l.request)
	}
	return l
}

// Busy reports whether the loop's goroutine is inside a locked part of the
// engine. When it is found so after a panic, the engine's state may be broken
// and the process must not go on.
func (l *Loop) Busy() bool { return l.tx.Open() }

// Refill begins a round: the loop has polled for input since the last one.
func (l *Loop) Refill() { l.budget, l.behind, l.gaveBack = roundBudget, false, false }

// Spend takes a cost off the round's budget and reports whether any is left. A single
// command of a client's is executed without; what takes long waits for the next
// round.
func (l *Loop) Spend(cost int) bool {
	l.budget -= cost
	return l.budget > 0
}

// Left is what is left of the round's budget. It is negative when more were
// spent than there were.
func (l *Loop) Left() int { return l.budget }

// Next returns a session that can go on: its Resume is to be called once, now or when
// the client has taken its output. It also returns a closed session whose Close was not
// done, when it is; there is nothing to resume then. Nil means that there is none, or
// that the budget is spent; then Next has called Waker.Wake.
//
// All that the engine does for the loop besides executing commands happens here:
// hand-overs, time-outs, deadlines of shards, closes, turns of long commands. The loop
// calls Next until it returns nil when it was woken or an alarm has come, and
// after it has called any other method of the loop or of its sessions, because what
// they hand over to the loop's own sessions does not wake it.
func (l *Loop) Next(now Time) *Session {
	l.tx.EndRound()
	for l.budget > 0 {
		if Time(l.alarm.Load()) <= now && (!l.behind || l.turns.Empty()) {
			l.MeetDeadlines(now)
		}
		if l.hasMail.Load() {
			l.takeMail()
		}
		if l.fed.Load() {
			l.feed()
		}
		if !l.calls.Empty() {
			l.answerCall(now)
		}
		if l.turns.Empty() {
			if !l.calls.Empty() || l.hasMail.Load() {
				continue
			}
			if l.behind && Time(l.alarm.Load()) <= now {
				continue
			}
			break
		}
		if s := l.turns.Pop(); s.goOn(now) {
			l.budget -= wakeCost
			return s
		}
	}
	if l.pending(now) {
		l.waker.Wake()
	}
	return nil
}

// pending reports whether there is something left to do that needs no alarm. It gives
// memory back that nobody has a use for.
func (l *Loop) pending(now Time) bool {
	if l.budget > 0 && !l.gaveBack && arena.Discarded() {
		l.gaveBack = true
		arena.GiveBack(arena.Slice)
	}
	return !l.turns.Empty() || !l.calls.Empty() || l.hasMail.Load() || l.fed.Load() ||
		Time(l.alarm.Load()) <= now || arena.Discarded()
}

// post tells the loop of a session that somebody with these locks has just claimed.
func (l *Loop) post(s *Session, by *shard.Tx) {
	l.mail.mu.Lock()
	l.mail.list = append(l.mail.list, s)
	// A loop that is executing commands calls Next when it is done with them.
	if l.unlockMail() && by != &l.tx {
		by.WakeAtEnd(&l.tx)
	}
}

// loaded is a wait of a session for bodies, which has ended.
type loaded struct {
	session *Session
	wait    *loads.Wait
}

// postLoaded tells the loop of a session that bodies are loaded for which it waits. Any goroutine may call it.
func (l *Loop) postLoaded(s *Session, w *loads.Wait) {
	l.mail.mu.Lock()
	l.mail.loads = append(l.mail.loads, loaded{s, w})
	if l.unlockMail() {
		l.waker.Wake()
	}
}

// unlockMail unlocks the mail, to which something was added, and reports whether the loop is to be woken.
func (l *Loop) unlockMail() (wake bool) {
	wake = !l.mail.woken
	l.mail.woken = true
	l.hasMail.Store(true)
	l.mail.mu.Unlock()
	return wake
}

// takeMail queues the sessions that were given a job.
func (l *Loop) takeMail() {
	l.mail.mu.Lock()
	l.taken, l.mail.list = l.mail.list, l.taken[:0]
	for _, c := range l.mail.calls {
		l.calls.Push(c)
	}
	l.mail.calls = nil
	var ended []loaded
	if len(l.mail.loads) > 0 {
		ended, l.mail.loads = l.mail.loads, nil
	}
	l.mail.woken = false
	l.hasMail.Store(false)
	l.mail.mu.Unlock()
	for i, s := range l.taken {
		l.taken[i] = nil
		l.turns.Push(s)
	}
	for _, x := range ended {
		if w := x.session.wait; w != nil && w.load == x.wait { // otherwise it has left, or waits for something else
			l.turns.Push(x.session)
		}
	}
	if cap(l.taken) > fifo.MaxCap {
		l.taken = nil
	}
}

// request asks for calls of Next at or soon after at, unless they were asked for
// earlier. Any goroutine may call it, with a shard's lock held.
func (l *Loop) request(at Time) {
	if int64(at) >= l.alarm.Load() {
		return
	}
	l.alarmMu.Lock()
	defer l.alarmMu.Unlock()
	if int64(at) < l.alarm.Load() {
		l.alarm.Store(int64(at))
		l.waker.Alarm(at)
	}
}

// alarmCame notes that the time of the alarm has come.
func (l *Loop) alarmCame() {
	l.alarmMu.Lock()
	l.alarm.Store(int64(MaxTime))
	l.alarmMu.Unlock()
}

// MeetDeadlines does what is due in the loop's shards, and ends the waits that have run out, with
// half of what is left of the budget. What is not done by then is due again at once.
func (l *Loop) MeetDeadlines(now Time) {
	kept := l.budget / 2
	l.budget -= kept
	l.alarmCame()
	l.engine.loopsMu.Lock()
	shards := l.shards // another loop may be made meanwhile
	l.engine.loopsMu.Unlock()
	for range shards {
		if l.budget <= 0 {
			break
		}
		l.tx.MeetDeadlines(shards[l.next%len(shards)], now)
		l.next++
	}
	if l.budget > 0 {
		l.wheel.Advance(int64(now), &l.budget)
	}
	l.due = Time(l.wheel.Due())
	l.request(l.due)
	if l.budget <= 0 {
		l.behind = true
		l.request(now)
	}
	l.budget += kept
}

func (l *Loop) schedule(t *queue.Timer, at, now Time) {
	if now < l.due {
		l.wheel.Skip(int64(now))
	}
	l.wheel.Schedule(t, int64(at))
	if at < l.due {
		l.due = at
		l.request(at)
	}
}

// Room says that a journal that has had no room may have some, or knows that the disk
// is full. Any goroutine may call it.
func (e *Engine) Room() {
	e.loopsMu.Lock()
	defer e.loopsMu.Unlock()
	for _, l := range e.loops {
		if l.starving.Load() {
			l.fed.Store(true)
			l.waker.Wake()
		}
	}
}

// feed queues the sessions that found no room in the journal: they try again.
func (l *Loop) feed() {
	l.fed.Store(false)
	for i, s := range l.starved {
		l.starved[i] = nil
		l.turns.Push(s)
	}
	l.starved = l.starved[:0]
}
