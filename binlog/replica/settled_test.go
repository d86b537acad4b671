package replica

import (
	"context"
	"testing"

	"trellis/binlog/journal"
)

// Only a leadership that ends while the queue is held, with nothing uncommitted, is settled.
func TestALeadershipIsSettledOnlyIfNothingIsUncommitted(t *testing.T) {
	put := func(l *Leadership) {
		if _, err := l.Put(&journal.Record{ID: 1, Tube: "x", Body: []byte("y")}); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		name    string
		do      func(l *Leadership)
		settled bool
	}{
		{"it hands over", func(l *Leadership) { l.held.Store(true) }, true},
		{"it is deposed", func(*Leadership) {}, false},
		{"it hands over with a record", func(l *Leadership) { put(l); l.held.Store(true) }, false},
		{"it hands over while a read is proven", func(l *Leadership) { l.Barrier(); l.held.Store(true) }, true},
		{"it was ended before", func(l *Leadership) { put(l); l.end(); l.held.Store(true) }, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			n := &Node{inbox: newInbox()}
			n.opts.Clock, n.opts.Observer = &testClock{}, nobody{}
			l := newLeadership(1, 0, n)
			x.do(l)
			l.end()
			if l.Settled() != x.settled {
				t.Errorf("it is settled: %v", l.Settled())
			}
		})
	}
}

// The node itself appends a batch behind the settling: it is committed, too, before the leadership ends.
func TestStepAsideWaitsForWhatTheNodeAppendsMeanwhile(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1).startAll()
	p := c.leader()
	n := p.running()
	l, err := n.leading()
	if err != nil {
		t.Fatal(err)
	}
	flushes := 0
	p.queue.onFlush = func() {
		if flushes++; flushes == 1 {
			l.stamp() // and nobody wakes the node, so that it is uncommitted when the node looks
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitTime)
	defer cancel()
	if err := n.StepAside(ctx); err != nil {
		t.Fatal(err)
	}
	if !l.Settled() || l.HandedOver() {
		t.Error("the leadership has ended with a batch that is not committed")
	}
}

// A leadership that was handed over is settled, whatever the node itself has appended meanwhile; one that goes on
// because the other member does not take over is not, when it ends later.
func TestALeadershipThatIsHandedOverIsSettled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	c.eventually("a leadership is handed over", func() bool {
		p := c.leader()
		n := p.running()
		l, err := n.leading()
		if err != nil {
			return false
		}
		flushes := 0
		p.queue.onFlush = func() {
			if flushes++; flushes == 1 {
				l.stamp() // and nobody wakes the node
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), waitTime)
		defer cancel()
		if err := n.Transfer(ctx, 0); err != nil {
			return false
		}
		if !l.Settled() || !l.HandedOver() {
			t.Error("the leadership has ended with a batch that is not committed")
		}
		return true
	})
}

func TestALeadershipThatGoesOnIsNotSettledLater(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	ended := make(chan error)
	go func() { ended <- h.handOverOnce(t.Context(), 0) }()
	var err error
	for going := true; going; {
		select {
		case err = <-ended:
			going = false
		default:
			h.consensus.onTick()
			h.run()
			for _, m := range h.sent {
				if r := answerTo(m); r != nil { // nobody campaigns
					h.Message(r)
				}
			}
			h.sent = nil
			h.run()
		}
	}
	if err == nil || l.over.Load() {
		t.Fatalf("it was handed over: %v", err)
	}
	h.deposed()
	h.run()
	if !l.over.Load() || l.Settled() {
		t.Errorf("it is over: %v, and settled: %v", l.over.Load(), l.Settled())
	}
}

// Gateways ask all the time whether this node still leads. Where the members are far from each other, one round or
// another is always under way: a hand-over does not wait for those that begin behind it.
func TestAHandOverDoesNotWaitForRoundsThatBeginMeanwhile(t *testing.T) {
	n := &Node{inbox: newInbox()}
	n.opts.Clock, n.opts.Observer = &testClock{}, nobody{}
	l := newLeadership(1, 0, n)
	round := func() journal.Pos {
		pos := l.Barrier()
		l.next()
		return pos
	}
	before := round()
	settled := make(chan error, 1)
	go func() { settled <- l.settle(t.Context()) }()
	for waits := false; !waits; {
		l.mu.Lock()
		waits = len(l.settlings) == 1
		l.mu.Unlock()
	}
	select {
	case err := <-settled:
		t.Fatalf("it has not waited for the round before: %v", err)
	default:
	}
	round()
	l.confirm(before)
	ctx, cancel := context.WithTimeout(t.Context(), waitTime)
	defer cancel()
	select {
	case err := <-settled:
		if err != nil {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Error("it waits for the round behind it")
	}
}
