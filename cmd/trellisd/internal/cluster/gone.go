package cluster

import (
	"errors"
	"sync"
	"time"

	"trellis/binlog/journal"
	"trellis/engine"
	"trellis/reactor"
)

// A leader has the numbers of gateways' loops be gone of which it has not heard for long: what their sessions hold is
// free then, and none of them ever comes back. The gateway has given up by then: see package reactor. What is true
// rests on the record, and on no clock.

const (
	// gonePause is between two looks at the gateways.
	gonePause = 250 * time.Millisecond
	// goneSpare is how much longer than its gateway the leader waits: for clocks, and for a loop that is slow.
	goneSpare = 2 * time.Second
	// goneTicks is how many of them there are without a trunk before a loop's number is gone; the first may come at once.
	goneTicks = 1 + int((reactor.LeaderPatience+goneSpare)/gonePause)
)

// absences is how long loops of gateways have had no trunk.
type absences struct {
	mu    sync.Mutex
	loops map[uint32]*absence // by number
	left  chan struct{}       // holds one when a gateway has left
}

// absence is that of a loop.
type absence struct {
	trunks int // that there are
	had    bool
	ticks  int // since the last one
	left   bool
}

func newAbsences() *absences {
	return &absences{loops: map[uint32]*absence{}, left: make(chan struct{}, 1)}
}

// of is what is known of a loop. With mu held.
func (a *absences) of(number uint32) *absence {
	x := a.loops[number]
	if x == nil {
		x = new(absence)
		a.loops[number] = x
	}
	return x
}

// began notes a trunk of a loop, and reports whether it is the first one. The number is one of
// those of tick, unless it is gone.
func (a *absences) began(number uint32) (first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.of(number)
	first = !x.had
	x.had = true
	x.trunks++
	return first
}

// ended notes its end. The loop is gone if it has left.
func (a *absences) ended(number uint32, left bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.of(number)
	x.trunks--
	x.ticks, x.left = 0, x.left || left
	if x.left {
		select {
		case a.left <- struct{}{}:
		default:
		}
	}
}

// tick lets time pass for the loops with the numbers that all returns, which are all that there are, and returns those
// that are gone.
func (a *absences) tick(all func() []uint32, by int) (gone []uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	numbers := all() // not before: a loop that has had a trunk is not to be forgotten
	before := a.loops
	a.loops = make(map[uint32]*absence, len(numbers))
	for n, x := range before {
		if x.trunks > 0 {
			a.loops[n] = x
		}
	}
	for _, n := range numbers {
		if x := before[n]; x != nil {
			a.loops[n] = x
		}
		x := a.of(n)
		if x.trunks > 0 {
			continue
		}
		if x.ticks += by; x.left || x.ticks >= goneTicks {
			gone = append(gone, n)
		}
	}
	return gone
}

// watchGateways ends the numbers of loops that are gone. Time is counted by ticks that this goroutine has seen, so
// that a leader that was stopped is patient.
func (s *service) watchGateways(e *engine.Engine) {
	ticker := time.NewTicker(gonePause)
	defer ticker.Stop()
	for {
		by := 0
		select {
		case <-s.ended.Done():
			return
		case <-ticker.C:
			by = 1
			if s.queue.resumes() && !s.numbered.Load() {
				s.number(e)
			}
		case <-s.absences.left:
		}
		for _, n := range s.absences.tick(func() []uint32 { return numbersOfOthers(e, s.self.nonce) }, by) {
			s.endNumber(e, n)
		}
	}
}

// numbersOfOthers are the numbers of loops that an engine knows, but for those of the server with this nonce: its own
// sessions need no trunk.
func numbersOfOthers(e *engine.Engine, nonce uint64) (numbers []uint32) {
	_ = e.Numbers(func(x *journal.Numbers) error {
		if x.Nonce != nonce {
			for i := range x.Count {
				numbers = append(numbers, x.First+i)
			}
		}
		return nil
	})
	return numbers
}

// endNumber ends the sessions of a number, or leaves that to the next look.
func (s *service) endNumber(e *engine.Engine, number uint32) {
	member, _ := e.NumberOf(number)
	err := s.unheld(func() error {
		_, err := e.EndNumber(number)
		if err == nil {
			s.queue.freedLoops++ // under the lock of unheld
		}
		return err
	})
	switch {
	case err == nil:
		s.queue.cfg.Log.Info("a loop of a member is gone, and what its clients hold is free", "member", member,
			"number", number)
	case !errors.Is(err, engine.ErrSessionsLeft) && !errors.Is(err, errNotServing) && s.ended.Err() == nil:
		s.queue.cfg.Log.Warn("the number of a loop that is gone stays", "number", number, "error", err)
	}
}

// unheld calls f while the queue serves and is not held: a hand-over waits for all that is on record, and for trunks.
func (s *service) unheld(f func() error) error {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.service != s || q.onHold {
		return errNotServing
	}
	return f()
}
