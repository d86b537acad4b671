package reactor

import (
	"context"
	"errors"
	"fmt"
)

// Responds returns nil once each loop has made a call, and the lock of each shard of the
// engine has been free for a moment; or when the server has ended. Otherwise its error
// names one that did not answer before ctx was done. A held server responds too.
//
// After an error, a goroutine waits for the lock that is not free: whoever has got an
// error should not ask again.
func (s *Server) Responds(ctx context.Context) error {
	const shards = -1
	silent := make(map[int]bool, len(s.loops)+1)
	answers := make(chan int, len(s.loops)+1)
	for i, l := range s.loops {
		silent[i] = true
		l.call(func(*loop) { answers <- i })
	}
	silent[shards] = true
	go func() {
		if e := s.engine.Load(); e != nil {
			e.Probe()
		}
		answers <- shards
	}()
	for len(silent) > 0 {
		select {
		case i := <-answers:
			delete(silent, i)
		case <-s.stopped:
			return nil
		case <-ctx.Done():
			for i := range silent {
				if i != shards {
					return fmt.Errorf("event loop %d does not answer", i)
				}
			}
			return errors.New("a shard of the engine does not answer")
		}
	}
	return nil
}
