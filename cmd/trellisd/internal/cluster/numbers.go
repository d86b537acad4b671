package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/replica"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire"
	"trellis/engine"
	"trellis/reactor"
)

// opNumbers is the request of a gateway for numbers of its loops, which a leader alone answers.
const opNumbers = "numbers"

type numbersRequest struct {
	Op     string    `json:"op"`
	Member member.ID `json:"member"`
	Nonce  uint64    `json:"nonce"`
	Loops  int       `json:"loops"`
}

type numbersResponse struct {
	Numbers []uint32 `json:"numbers"`
}

const (
	// numbersTimeout is how long a gateway waits for its numbers, and the leader until it serves, and for the end of
	// the sessions of the gateway's process before.
	numbersTimeout = 5 * time.Second
	// leavePause is between two looks whether those have ended.
	leavePause = 5 * time.Millisecond
)

// askNumbers asks the leader for the numbers of a gateway's loops. Asked again, it gives the same.
func (m *Member) askNumbers(ctx context.Context, leader member.ID, nonce uint64, loops int) ([]uint32, error) {
	st := m.node.Load().Status()
	i := slices.IndexFunc(st.Members, func(o replica.MemberStatus) bool { return o.ID == leader })
	if i < 0 {
		return nil, errNoLeader
	}
	req, err := json.Marshal(numbersRequest{opNumbers, st.Self, nonce, loops})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, numbersTimeout)
	defer cancel()
	resp, err := m.call(ctx, st.Members[i].Addr, req)
	if err != nil {
		return nil, err
	}
	var r numbersResponse
	if err := json.Unmarshal(resp, &r); err != nil {
		return nil, fmt.Errorf("the numbers that the leader has given: %w", err)
	}
	if len(r.Numbers) != loops || slices.Contains(r.Numbers, 0) {
		return nil, fmt.Errorf("the leader has given the numbers %v to %d loops", r.Numbers, loops)
	}
	return r.Numbers, nil
}

// giveNumbers answers a gateway.
func (m *Member) giveNumbers(ctx context.Context, from wire.Caller, req []byte) ([]byte, error) {
	if from.Member != nil {
		return nil, fmt.Errorf("%s: %w", opNumbers, from.Member)
	}
	var r numbersRequest
	if err := json.Unmarshal(req, &r); err != nil || r.Nonce == 0 || r.Loops < 1 || r.Loops > reactor.MaxLoops {
		return nil, errors.New("a request for numbers that no gateway makes")
	}
	node := m.node.Load()
	if node == nil {
		return nil, errNotYet
	}
	if !slices.ContainsFunc(node.Status().Members, func(o replica.MemberStatus) bool { return o.ID == r.Member }) {
		return nil, fmt.Errorf("there is no member %s", r.Member)
	}
	ctx, cancel := context.WithTimeout(ctx, numbersTimeout)
	defer cancel()
	s, e := m.cfg.Queue.awaitService(ctx)
	if s == nil {
		return nil, errNotServing
	}
	defer context.AfterFunc(s.ended, cancel)()
	for {
		// Nothing of the gateway's process before may be under way when its numbers are gone.
		if err := m.transport.EndTrunks(ctx, r.Member, r.Nonce); err != nil {
			return nil, err
		}
		var given []uint32
		var pos journal.Pos
		err := s.unheld(func() (err error) {
			given, pos, err = e.GiveNumbers(uint64(r.Member), r.Nonce, r.Loops)
			return err
		})
		switch {
		case err == nil && s.await(ctx, pos):
			return json.Marshal(numbersResponse{given})
		case err == nil:
			return nil, errNotServing
		case !errors.Is(err, engine.ErrSessionsLeft):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(about(leavePause)):
		}
	}
}

// number gives the loops of the leader's own server their numbers: sessions that are on record have ids that begin with
// them. Until all members can read of that there are none.
func (s *service) number(e *engine.Engine) {
	for !s.hasNumbers(e) {
		select {
		case <-s.ended.Done():
			return
		case <-time.After(about(leavePause)):
		}
	}
}

// hasNumbers gives the loops their numbers unless they have them. It returns false if that is to be tried again.
func (s *service) hasNumbers(e *engine.Engine) bool {
	g := s.self
	g.asking.Lock()
	defer g.asking.Unlock()
	if s.numbered.Load() {
		return true
	}
	var given []uint32
	err := s.unheld(func() (err error) {
		given, _, err = e.GiveNumbers(g.id(), g.nonce, s.server.Loops())
		return err
	})
	switch {
	case err == nil:
		g.take(given)
		s.server.Number(g.all())
		s.numbered.Store(true)
	case errors.Is(err, engine.ErrSessionsLeft) || errors.Is(err, errNotServing):
		return false
	case !errors.Is(err, engine.ErrNoHolds):
		s.queue.cfg.Log.Warn("the clients of this node have no numbers: a hand-over ends them", "error", err)
	}
	return true
}
