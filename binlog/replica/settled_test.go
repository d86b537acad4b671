package replica

import (
	"context"
	"testing"

	"trellis/binlog/journal"
)

// Only a leadership that ends because the node steps aside, with nothing uncommitted, is settled.
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
		{"it steps aside", func(l *Leadership) { l.aside.Store(true) }, true},
		{"it is deposed", func(*Leadership) {}, false},
		{"it steps aside with a record", func(l *Leadership) { put(l); l.aside.Store(true) }, false},
		{"it steps aside while a read is proven", func(l *Leadership) { l.Barrier(); l.aside.Store(true) }, true},
		{"it was ended before", func(l *Leadership) { put(l); l.end(); l.aside.Store(true) }, false},
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
	if !l.Settled() {
		t.Error("the leadership has ended with a batch that is not committed")
	}
}
