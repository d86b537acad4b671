package reactor

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

var errAborted = errors.New("reactor: the server was aborted")

// Hold stops the execution of commands, or goes on with it. When Hold(true) returns, no
// command executes on any loop, and none will until Hold(false) or Shutdown. Nor do waits
// end, nor does anything happen that is due; all that is made up for afterwards. What
// clients send meanwhile is kept, up to the usual limits; connections are accepted, and
// replies are sent when they are committed.
//
// A server that is being shut down is not held. Hold(true) then returns when it has ended.
// Calls of Hold must not overlap.
func (s *Server) Hold(on bool) {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		if on {
			<-s.stopped
		}
		return
	}
	s.holds.Add(1)
	s.mu.Unlock()
	defer s.holds.Done()
	s.onLoops(func(l *loop) { l.held = on })
}

// Abort ends the server without a word: it closes the listeners, drops all output that
// was not written, and resets all connections, so that clients know that they do not know
// what has become of their commands. (A Unix socket cannot be reset, and is closed.) When
// Abort returns, nothing executes any more, and the loops have ended. The sessions are
// left in the engine as they are: nothing but Discard is to be done with it.
//
// A Shutdown that is under way ends at once, with an error.
func (s *Server) Abort() {
	s.abort.Do(func() {
		s.aborting.Store(true)
		close(s.aborted)
	})
	_ = s.Shutdown(context.Background())
}

// resetOnClose has the system throw away what it has not sent, and tell the peer so, when the
// connection is closed.
func (c *conn) resetOnClose() {
	// It may have ended, and then there is nobody to tell.
	_ = unix.SetsockoptLinger(int(c.fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}
