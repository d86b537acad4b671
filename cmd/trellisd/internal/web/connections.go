package web

import (
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
)

// maxConnections is how many connections there may be. Their descriptors are of those that
// reactor.DefaultMaxConnections leaves free.
const maxConnections = 32

// connections keeps the number of a server's connections at maxConnections. The zero value
// is ready.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]struct{} // guarded by mu; those that were not closed here
	idle []net.Conn            // guarded by mu; of the open ones, those that ask nothing, the longest time first
}

// changed is called with each change of a connection's state. For a connection that is one too
// many, the one that has been idle longest is closed: whoever keeps connections open and asks
// nothing must not shut out others. If none is idle, the new one is closed.
func (s *connections) changed(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.idle, c); i >= 0 {
		s.idle = slices.Delete(s.idle, i, i+1)
	}
	switch state {
	case http.StateNew:
		if s.open == nil {
			s.open = make(map[net.Conn]struct{})
		}
		s.open[c] = struct{}{}
		s.idle = append(s.idle, c)
		if len(s.open) > maxConnections {
			excess := s.idle[0]
			s.idle = slices.Delete(s.idle, 0, 1)
			delete(s.open, excess)
			closeNow(excess)
		}
	case http.StateIdle:
		if _, ok := s.open[c]; ok {
			s.idle = append(s.idle, c)
		}
	case http.StateClosed:
		delete(s.open, c)
	}
}

// closeNow closes a connection without TLS's farewell, which could wait for the peer.
func closeNow(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}
