package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire"
	"trellis/engine"
)

const (
	// servicePatience is how long a gateway waits for a leader that does not serve yet, or is held.
	servicePatience = 2 * time.Second
	// servicePause is between two looks whether it leads at all.
	servicePause = 50 * time.Millisecond
	// trunkPatience is how long a trunk waits for the end of what the one before has under way.
	trunkPatience = 2 * time.Second
	// trunkPause is between two looks.
	trunkPause = time.Millisecond
)

var (
	errNotServing = errors.New("this node does not lead, or does not serve yet")
	errLeft       = errors.New("the gateway has left")
	errUnderWay   = errors.New("what is under way for the loop's sessions does not end")
)

// awaitService waits until the queue serves and is not held, while this node leads. It returns nil if that does not
// come about before ctx is done.
func (q *Queue) awaitService(ctx context.Context) (*service, *engine.Engine) {
	for {
		q.mu.Lock()
		s, e, held, news := q.service, q.engine, q.onHold, q.news
		q.mu.Unlock()
		if s != nil && !held {
			return s, e
		}
		if !q.leads() {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-news:
		case <-time.After(about(servicePause)):
		}
	}
}

// announce wakes those who wait in awaitService. With mu held.
func (q *Queue) announce() {
	close(q.news)
	q.news = make(chan struct{})
}

// takeTrunk tells what takes a trunk of another member's gateway.
func (q *Queue) takeTrunk(
	ctx context.Context, from member.Member, h wire.TrunkHello,
) (take func(*wire.Trunk), err error) {
	ctx, cancel := context.WithTimeout(ctx, servicePatience)
	defer cancel()
	s, e := q.awaitService(ctx)
	if s == nil {
		return nil, errNotServing
	}
	if id, nonce := e.NumberOf(h.Number); id != uint64(from.ID) || nonce != h.Nonce {
		return nil, errors.New("the loop's number was not given to this process of the member")
	}
	return func(k *wire.Trunk) { s.takeTrunk(k, e, h) }, nil
}

// takeTrunk gives the server a trunk when nothing is under way any more for sessions of the loop's trunk
// before. All that was executed for them lies before the fence then.
func (s *service) takeTrunk(k *wire.Trunk, e *engine.Engine, h wire.TrunkHello) {
	first := s.absences.began(h.Number)
	var left atomic.Bool
	until, end := context.WithCancelCause(k.Context)
	c := trunkConn(k, h.Number, until, func(err error) {
		k.End(err)
		end(nil)
		s.absences.ended(h.Number, left.Load())
	})
	c.Leaves = func() {
		left.Store(true)
		end(errLeft)
	}
	fence, err := s.endsBefore(k, e, h.Number, first)
	if err == nil {
		version := min(h.Version, s.queue.trunks)
		if version < resumesSince {
			e.CloseAbsent(h.Number) // it cannot say that they are still there
		}
		c.Version, c.Term, c.Fence = version, s.leadership.Term(), fence
		err = s.unheld(func() error {
			_ = s.server.AcceptTrunk(c) // which tells of the end, from now on
			return nil
		})
	}
	if err != nil {
		c.Ended(err)
	}
}

// endsBefore waits until nothing is under way for sessions of a loop, and returns the fence behind all that was:
// nothing in this leadership, if it is the loop's first trunk in that.
func (s *service) endsBefore(k *wire.Trunk, e *engine.Engine, number uint32, first bool) (fence uint64, err error) {
	ctx, cancel := context.WithTimeoutCause(k.Context, trunkPatience, errUnderWay)
	defer cancel()
	defer context.AfterFunc(s.ended, cancel)()
	for e.NumberPresent(number) {
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(about(trunkPause)):
		}
	}
	return s.queue.fence(ctx, s.leadership, !first)
}
