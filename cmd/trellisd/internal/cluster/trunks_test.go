package cluster

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"trellis/binlog/replica"
	"trellis/binlog/replica/wire"
	"trellis/engine"
)

// A leader lets a gateway wait while it does not serve yet, or is about to hand over.
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
	q.service, q.engine, q.onHold = want, e, true
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

// unheldBy reports whether something may be done.
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

// A leader that has handed over refuses, too: the next one knows the numbers.
func TestALeaderThatHasRefusedIsAskedForTheNumbersAndNoOther(t *testing.T) {
	g := new(Member).newGateway(1)
	old, next := new(reign), new(reign)
	if g.knowsNumbers(old) {
		t.Fatal("the numbers are known before a leader has given any")
	}
	g.take([]uint32{4})
	g.askAgain(old)
	if g.knowsNumbers(old) || !g.knowsNumbers(next) {
		t.Errorf("the one that has refused: %v, the other: %v", !g.knowsNumbers(old), !g.knowsNumbers(next))
	}
	if g.take([]uint32{5}); !g.knowsNumbers(old) {
		t.Error("numbers that were given anew are not known")
	}
}

// The fence of a trunk is taken when nothing is under way any more for sessions of its loop.
func TestAFenceIsBehindWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	r.eventually("a loop has a session", func() bool { // again where another member leads by then
		l, _ := r.leader(-1)
		g := r.others(l)[0]
		c, _, err := r.try(g, false, "use x\r\n")
		if c != nil {
			defer c.Close()
		}
		s, e := r.queues[l].awaitService(t.Context())
		f := r.queues[g].forwarded()
		if err != nil || s == nil || f == nil {
			return false
		}
		numbers := f.self.all()
		i := slices.IndexFunc(numbers, e.NumberPresent)
		if i < 0 {
			return false
		}
		fenced := 0
		q := &Queue{fence: func(_ context.Context, _ *replica.Leadership, executed bool) (uint64, error) {
			if fenced++; !executed {
				t.Error("the fence is not behind what the leadership has executed")
			}
			if e.NumberPresent(numbers[i]) {
				t.Error("the fence is taken before the session has ended")
			}
			return 7, nil
		}}
		began := &service{clients: &clients{queue: q}, leadership: s.leadership, ended: s.ended}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := began.endsBefore(&wire.Trunk{Context: ctx}, e, numbers[i], false); err == nil {
			t.Error("a trunk begins beside a session of the one before")
		}
		_ = c.Close()
		fence, err := began.endsBefore(&wire.Trunk{Context: t.Context()}, e, numbers[i], false)
		if err == nil && (fence != 7 || fenced != 1) {
			t.Errorf("the fence is %d, and was taken %d times", fence, fenced)
		}
		return err == nil || t.Failed()
	})
}

// A welcome names the entry up to which the leader has committed.
func TestAWelcomeTellsOfTheFence(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	r.all()
	r.eventually("a gateway is welcomed anew", func() bool { // again where another member leads by then
		l, _ := r.leader(-1)
		g := r.others(l)[0]
		if _, line, err := r.try(l, false, "put 0 0 9 1\r\nx\r\n"); err != nil || !strings.HasPrefix(line, "INSERTED ") {
			return false
		}
		st := r.members[l].Status()
		if err := r.members[l].transport.EndTrunks(t.Context(), r.members[g].Status().Self, 1); err != nil || !st.Leads {
			return false
		}
		r.eventually("it knows of the fence", func() bool {
			f := r.queues[g].Forwarding()
			return f == nil || f.Attached && f.Fence >= st.Commit
		})
		return r.queues[g].Forwarding() != nil
	})
}
