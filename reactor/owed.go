package reactor

import (
	"errors"
	"time"
)

var errTooMuchTotal = errors.New(
	"all clients together are owed more replies than may be kept, and it is owed most")

// OwedMore implements stream.Owner.
func (l *loop) OwedMore() { l.server.relieve() }

// relieve makes the loop whose client is owed most close that, if all together are owed too much.
// Any loop may call it.
func (s *Server) relieve() {
	if s.pendingOutput() <= s.cfg.MaxOutputTotal {
		return
	}
	var at *loop
	most := int64(0)
	for _, l := range s.loops {
		if n := l.streams.MostOwed.Load(); n > most {
			at, most = l, n
		}
	}
	if at != nil && !at.relief.Swap(true) {
		at.gnet.Wake()
	}
}

// pendingOutput is how many bytes all clients together are owed.
func (s *Server) pendingOutput() (bytes int64) {
	for _, l := range s.loops {
		bytes += l.streams.Counts.PendingOutput.Load()
	}
	return bytes
}

// closeLargest closes the connection that is owed most, because a loop has found that all
// together are owed too much, and looks whether that was enough.
func (l *loop) closeLargest(now time.Duration) {
	l.relief.Store(false)
	s := l.server
	largest, bytes := l.streams.Largest()
	if largest == nil || s.pendingOutput() <= s.cfg.MaxOutputTotal {
		return
	}
	c := connOfStream(largest)
	l.counts.overTotal.Add(1)
	if n, ok := s.closes.Allow(); ok {
		s.log.Warn("a client's connection is closed", "error", errTooMuchTotal, "peer", c.endpoint().String(),
			"bytes", bytes, "limit", s.cfg.MaxOutputTotal, "unreported", n)
	}
	c.fail()
	c.end(now)
	s.relieve()
}
