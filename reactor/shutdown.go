package reactor

import (
	"context"
	"fmt"
	"slices"
)

// Shutdown ends a Hold, stops accepting and closes the listeners, sends what clients are
// owed, closes all connections and stops the loops. It waits for clients that do
// not read until ctx is done, and then drops their output; a client that waits
// for a job is not waited for. Its error is that of ctx when output was dropped.
// Calls after the first wait for the first to end and return nil. A server without an engine is
// aborted: see Detach.
func (s *Server) Shutdown(ctx context.Context) (err error) {
	s.shutdown.Do(func() {
		s.stopAccepting()
		// gnet takes no more connections once its loops have ended: it would
		// wait for them for ever.
		s.acceptor.Wait()
		s.dialers.Wait()
		s.holds.Wait()
		// Each client is read at most once more: one that never pauses would always be
		// owed something. What a loop is executing counts in unflushed once this has run.
		switch {
		case s.engine.Load() != nil:
			s.release()
		case s.loops[0].gateway == nil:
			s.beginAbort() // nothing can be executed
		}
		s.onLoops(func(l *loop) {
			l.admitAll()
			l.draining = true
			l.gateway.finish(s.now())
		})
		err = s.awaitFlush(ctx)
		s.giveUp = ctx.Done()
		s.stop()
		close(s.stopped)
	})
	<-s.stopped
	return err
}

// stopAccepting makes Serve return.
func (s *Server) stopAccepting() {
	s.acceptor.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing = true
		close(s.done)
	}
}

// awaitFlush waits until no client is owed anything.
func (s *Server) awaitFlush(ctx context.Context) error {
	for s.unflushed.Load() > 0 {
		select {
		case <-s.flushed:
		case <-s.aborted:
			return errAborted
		case <-ctx.Done():
			return fmt.Errorf("reactor: dropping the output of %d clients: %w", s.unflushed.Load(), ctx.Err())
		}
	}
	if s.aborting.Load() {
		return errAborted // it was dropped
	}
	return nil
}

// stop ends the loops.
func (s *Server) stop() {
	s.onLoops((*loop).prepareToStop)
	s.endLoops()
}

// prepareToStop makes a loop ready for its end.
func (l *loop) prepareToStop() {
	now := l.server.now()
	l.stopping = true
	l.engine.Stop()
	for _, c := range slices.Clone(l.conns) {
		if !c.Polled() {
			c.abandon(now)
		}
	}
	if !l.server.aborting.Load() {
		l.gateway.leave()
	}
}

// Abort ends the server without a word: it closes the listeners, drops all output that
// was not written, and resets all connections, so that clients know that they do not know
// what has become of their commands. (A Unix socket cannot be reset, and is closed.) When
// Abort returns, nothing executes any more, and the loops have ended. The sessions are
// left in the engine as they are: nothing but Discard is to be done with it.
//
// A loop that hangs keeps Abort from returning. On Linux the clients of the other loops are
// reset at once nevertheless, and those that come to these loops later. The listeners accept
// nobody any more. Processes that share the listening sockets cannot accept on them any more
// either.
//
// A Shutdown that is under way ends at once, with an error.
func (s *Server) Abort() {
	s.beginAbort()
	_ = s.Shutdown(context.Background())
}

// beginAbort resets all connections.
func (s *Server) beginAbort() {
	s.abort.Do(func() {
		s.aborting.Store(true)
		close(s.aborted)
		s.stopAccepting()
		s.acceptor.Abort()
		for _, l := range s.loops {
			l.call((*loop).resetAll)
		}
	})
}

// resetAll ends all connections of the loop. The server is being aborted.
func (l *loop) resetAll() {
	l.prepareToStop()
	now := l.server.now()
	for _, c := range slices.Clone(l.conns) {
		c.reset(now)
	}
	l.links.Resets = true
	for _, t := range l.links.All() {
		t.Fail(now, errAborted)
	}
}
