package web

import (
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
)

const (
	// maxConnections is how many connections there may be. Their descriptors are of those that
	// reactor.DefaultMaxConnections leaves free.
	maxConnections = 32

	// maxRequests is how many requests may be under way, those for health aside. It is less than
	// maxConnections: so there is always a connection that can give way to a new one, which may
	// be that of a probe.
	maxRequests = maxConnections - 4
)

// connections keeps the number of a server's connections at maxConnections, and that of its
// requests at maxRequests. The zero value is ready.
type connections struct {
	mu       sync.Mutex
	open     map[net.Conn]int // requests under way by connection; guarded by mu; without those that were closed here
	idle     []net.Conn       // guarded by mu; of the open ones, those without such requests, the longest time first
	requests int              // under way on all connections; guarded by mu
}

// changed is called with each change of a connection's state. For a connection that is one too
// many, the one is closed that has asked nothing, or for health only, for the longest time:
// whoever keeps connections open, or sends a request bit by bit, must not shut out others.
func (s *connections) changed(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		if s.open == nil {
			s.open = make(map[net.Conn]int)
		}
		s.open[c] = 0
		s.idle = append(s.idle, c)
		if len(s.open) > maxConnections {
			excess := s.idle[0]
			s.idle = slices.Delete(s.idle, 0, 1)
			delete(s.open, excess)
			closeNow(excess)
		}
	case http.StateActive, http.StateIdle:
		if i := slices.Index(s.idle, c); i >= 0 {
			s.idle = append(slices.Delete(s.idle, i, i+1), c)
		}
	case http.StateClosed:
		s.leave(c)
		delete(s.open, c)
	}
}

// leave takes a connection out of the idle ones. The caller holds mu.
func (s *connections) leave(c net.Conn) {
	if i := slices.Index(s.idle, c); i >= 0 {
		s.idle = slices.Delete(s.idle, i, i+1)
	}
}

// begin reports whether a request may begin on a connection. If so, end ends it.
func (s *connections) begin(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == maxRequests {
		return false
	}
	s.requests++
	if n, ok := s.open[c]; ok {
		s.open[c] = n + 1
		s.leave(c)
	}
	return true
}

func (s *connections) end(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests--
	if n, ok := s.open[c]; ok {
		if s.open[c] = n - 1; n == 1 {
			s.idle = append(s.idle, c)
		}
	}
}

// connKey is of the context of requests: their connection.
type connKey struct{}

// limited lets requests through, a bounded number at a time.
func (s *connections) limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(connKey{}).(net.Conn)
		if !s.begin(c) {
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", "2")
			answer(w, http.StatusServiceUnavailable, "too many requests at a time")
			return
		}
		defer s.end(c)
		next.ServeHTTP(w, r)
	})
}

// closeNow closes a connection without TLS's farewell, which could wait for the peer.
func closeNow(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}
