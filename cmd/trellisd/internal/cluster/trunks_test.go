package cluster

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"trellis/binlog/replica"
	"trellis/engine"
)

// A leader has a gateway wait while it does not serve yet, or is about to hand over.
func TestAGatewayWaitsForALeaderThatDoesNotServeYet(t *testing.T) {
	var leads atomic.Bool
	q := NewQueue(QueueConfig{})
	q.leads = leads.Load
	if s, _ := q.awaitService(t.Context()); s != nil {
		t.Fatal("a node that does not lead serves")
	}
	leads.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, _ := q.awaitService(ctx); s != nil {
		t.Fatal("a node that does not serve serves")
	}
	want, e := new(service), new(engine.Engine)
	want.leadership = new(replica.Leadership)
	got := make(chan *service)
	await := func() {
		go func() {
			s, its := q.awaitService(t.Context())
			if s != nil && its != e {
				t.Error("another engine")
			}
			got <- s
		}()
		select {
		case s := <-got:
			t.Fatalf("%v, and it does not serve", s)
		default:
		}
	}
	await()
	q.mu.Lock()
	q.service, q.engine, q.held = want, e, true
	q.announce()
	q.mu.Unlock()
	q.hold(want, false)
	if s := <-got; s != want {
		t.Errorf("waited for %v", s)
	}
	q.hold(want, true)
	if err := want.unheldBy(q); err == nil {
		t.Error("something is done while the queue is held")
	}
	await()
	q.mu.Lock()
	q.service = nil // it has handed over
	q.mu.Unlock()
	leads.Store(false)
	if s := <-got; s != nil {
		t.Errorf("%v, and another member leads", s)
	}
}

// unheldBy tells whether something may be done.
func (s *service) unheldBy(q *Queue) error {
	s.clients = &clients{queue: q}
	return s.unheld(func() error { return nil })
}

// What a number is given for has ids that begin with it: it stays that of its loop.
func TestALoopKeepsItsNumber(t *testing.T) {
	g := new(Member).newGateway(3)
	for _, step := range []struct{ given, want []uint32 }{
		{[]uint32{4, 5, 6}, []uint32{4, 5, 6}},
		{[]uint32{4, 5, 6}, []uint32{4, 5, 6}},
		{[]uint32{5, 6, 9}, []uint32{9, 5, 6}},
		{[]uint32{6, 10, 11}, []uint32{10, 11, 6}},
	} {
		g.take(step.given)
		if !slices.Equal(g.numbers, step.want) {
			t.Fatalf("of %v the loops have %v, want %v", step.given, g.numbers, step.want)
		}
	}
}
