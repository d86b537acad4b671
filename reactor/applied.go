package reactor

import (
	"slices"
	"sync"
	"sync/atomic"

	"trellis/binlog/journal"
)

// What a gateway's own log tells of the commands of its clients: should the leader change, it tells the next one what
// of that has no answer yet.

const (
	// keepEffects is of how many effects a loop is not told at once.
	keepEffects = 4 << 10
	// maxEffects is how many may wait for a loop that does not take them.
	maxEffects = 1 << 20
)

// effects are what the log has told for a loop of a gateway.
type effects struct {
	number atomic.Uint32 // with which the ids of the loop's sessions begin; 0 while there is none
	fence  atomic.Uint64 // the index for which the loop waits; relay.NoIndex for none
	full   atomic.Bool   // there are enough for the loop to look at them, or some were lost

	mu     sync.Mutex
	posted []journal.Effect // guarded by mu
	lost   bool             // there were more, of which nothing is known; guarded by mu

	spare []journal.Effect // memory for posted, while that is looked at; of the loop's goroutine
}

// Applied tells a server of an entry of the log that this member has applied, and of what it tells of commands, those
// of others' clients included. Entries that have no effects may be left out, if the next one is not. One
// goroutine may call it at a time.
func (s *Server) Applied(index uint64, list []journal.Effect) {
	for len(list) > 0 {
		number := journal.NumberOf(list[0].Session)
		n := slices.IndexFunc(list, func(e journal.Effect) bool { return journal.NumberOf(e.Session) != number })
		if n < 0 {
			n = len(list)
		}
		if l := s.loopOf(number); l != nil {
			l.effects.post(l, list[:n])
		}
		list = list[n:]
	}
	s.applied.Store(index)
	for _, l := range s.loops {
		if l.effects.fence.Load() <= index {
			l.gnet.Wake()
		}
	}
}

// EffectsLost tells a server that what follows in Applied is behind entries of which it was not told. What clients
// were not answered by then does not go on under another leader.
func (s *Server) EffectsLost() {
	for _, l := range s.loops {
		l.effects.lose(l)
	}
}

// loopOf is the loop that forwards under a number, nil if none does.
func (s *Server) loopOf(number uint32) *loop {
	for _, l := range s.loops {
		if l.effects.number.Load() == number && number != 0 {
			return l
		}
	}
	return nil
}

func (b *effects) post(l *loop, list []journal.Effect) {
	b.mu.Lock()
	had := len(b.posted)
	b.posted = append(b.posted, list...)
	n := len(b.posted)
	b.mu.Unlock()
	switch {
	case n > maxEffects:
		b.lose(l)
	case n >= keepEffects && had < keepEffects:
		b.full.Store(true)
		l.gnet.Wake()
	}
}

// lose notes that there were more. The loop looks at that soon: what clients have not sent by then is not concerned.
func (b *effects) lose(l *loop) {
	b.mu.Lock()
	b.posted, b.lost = nil, true
	b.mu.Unlock()
	b.full.Store(true)
	l.gnet.Wake()
}

// take takes what was posted, until it is called again. lost tells that there was more before it.
func (b *effects) take() (list []journal.Effect, lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list, lost = b.posted, b.lost
	b.posted, b.lost = b.spare, false
	b.full.Store(false)
	b.spare = nil
	if cap(list) <= 2*keepEffects {
		b.spare = list[:0]
	}
	return list, lost
}
