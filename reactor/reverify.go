package reactor

import (
	"iter"
	"maps"
	"sync"
	"unique"
)

// Reverify verifies the certificates of clients again. rejected is called once, on the caller's
// goroutine, with what different clients have sent in their handshakes: each a certificate and those
// behind it, in DER. It returns those that are not accepted any more, and why. Their connections end
// as soon as that can be in order, and at the latest after Config.Grace; what they have reserved
// then is given back. Reverify returns when the loops have been told. Any goroutine may call it.
//
// Clients whose handshake ends only after that are not looked at. On a server that is being
// shut down, or has ended, Reverify does nothing.
func (s *Server) Reverify(rejected func(certificates []string) map[string]error) {
	if !s.beginHold() {
		return
	}
	defer s.holds.Done()
	var mu sync.Mutex
	all := make(map[unique.Handle[string]]struct{}) // guarded by mu
	s.onLoops(func(l *loop) {
		some := make(map[unique.Handle[string]]struct{})
		for t := range l.certified() {
			some[t.certificates] = struct{}{}
		}
		mu.Lock()
		defer mu.Unlock()
		maps.Copy(all, some)
	})
	var certificates []string
	for h := range all {
		certificates = append(certificates, h.Value())
	}
	if len(certificates) == 0 {
		return
	}
	bad := make(map[unique.Handle[string]]struct{})
	for der, err := range rejected(certificates) {
		bad[unique.Make(der)] = struct{}{}
		if n, ok := s.unverified.Allow(); ok {
			s.log.Warn("a client's certificate is not accepted any more; its connections are ended",
				"error", err, "unreported", n)
		}
	}
	if len(bad) == 0 {
		return
	}
	s.onLoops(func(l *loop) {
		for t := range l.certified() {
			if _, ok := bad[t.certificates]; ok {
				l.unverified = append(l.unverified, &t.conn)
			}
		}
	})
}

// certified are the loop's connections whose clients have a certificate.
func (l *loop) certified() iter.Seq[*tlsConn] {
	return func(yield func(*tlsConn) bool) {
		for _, c := range l.conns {
			t := c.tlsConn()
			if t == nil || c.phase >= draining {
				continue
			}
			if t.certificates != (unique.Handle[string]{}) && !yield(t) {
				return
			}
		}
	}
}
