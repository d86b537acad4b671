package reactor

import (
	"context"
	"time"

	"trellis/reactor/internal/link"
	"trellis/reactor/internal/trunk"
)

// A loop pauses before it dials again. The pause doubles each time, until there was a trunk.
const (
	minDialPause = 20 * time.Millisecond
	maxDialPause = time.Second
)

// Forward makes a server without an engine forward its clients to a leader, over a trunk for each loop. dial is
// called for each loop, by its number from 0 on, on a goroutine of its own, and again, after a pause, when it has
// failed or the trunk has ended. It returns when its context is done, which it is when the server is
// shut down, or given an engine. A client waits up to 6 s for a trunk, and is then reset. When the trunk ends, clients
// wait for the next one, as package relay says.
//
// It is called once for a server that is made without an engine, and once behind each Detach. Then clients go on that
// were put on record by Record, with what they have reserved; all others are reset. Forward does not wait for a
// trunk.
func (s *Server) Forward(dial func(ctx context.Context, loop int) (TrunkConn, error)) {
	if !s.beginHold() {
		return
	}
	defer s.holds.Done()
	s.held.Store(false)
	s.forwarding.begin(s.now())
	s.onLoops((*loop).beginForwarding)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.dials = cancel
	s.dialers.Go(func() {
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	})
	for i, l := range s.loops {
		s.dialers.Go(func() { l.keepTrunk(ctx, func() (TrunkConn, error) { return dial(ctx, i) }) })
	}
}

// keepTrunk dials for a gateway's loop, until ctx is done.
func (l *loop) keepTrunk(ctx context.Context, dial func() (TrunkConn, error)) {
	for pause := minDialPause; ; {
		began := time.Now()
		c, err := dial()
		ended := make(chan bool, 1)
		if err == nil {
			err = l.server.layTrunk(l, c, trunk.Leader, func(t *link.Link) link.End {
				if ctx.Err() != nil {
					return nil // the loop forwards no more, or the server ends
				}
				return l.gateway.connect(t, c.Number, ended)
			})
		}
		wait := pause
		pause = min(2*pause, maxDialPause)
		if err == nil {
			select {
			case welcomed := <-ended:
				if welcomed { // its clients wait for the next
					wait, pause = minDialPause-time.Since(began), minDialPause
				}
			case <-ctx.Done():
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
