package reactor

import (
	"crypto/tls"

	"trellis/engine"
)

// Access decides who may do what. Its methods are called on the goroutines of loops, also
// of several at a time, and must not block.
type Access interface {
	// Identify returns the rights of a client that is known by the user at the other end
	// of its Unix socket, or by its certificate. It returns nil for a client that has to
	// authenticate. It is not called for plain TCP, which tells nothing of a client.
	Identify(p *Peer) *engine.Grant
	// Authenticate returns the rights of the client to whom a token belongs, nil if the
	// token is nobody's. token is valid during the call only.
	Authenticate(p *Peer, token []byte) *engine.Grant
	// Refused reports a client that is disconnected because it has sent something else
	// than a token, or no line for too long or while others wanted its slot.
	Refused(p *Peer, why Refusal)
}

// Refusal is why a client that has not authenticated is disconnected. A token that is
// nobody's is no such reason: Authenticate has seen it.
type Refusal uint8

// The reasons.
const (
	RefusedUnauthenticated Refusal = iota // it has sent a command
	RefusedSilent                         // it has sent no line in time
	RefusedCrowded                        // it has sent no line yet, and others want its slot
)

// Peer is what is known of who is at the other end of a connection.
type Peer struct {
	// Addr is its address and port, "unix" on a Unix socket, "" if the system does not
	// tell.
	Addr string
	// UID is the user on a Unix socket as whom it has connected, or -1.
	UID int
	// TLS is the state of the connection after its handshake, nil without TLS. It is valid
	// during the call.
	TLS *tls.ConnectionState
}

// known reports whether the connection itself may say who the peer is.
func (p *Peer) known() bool { return p.UID >= 0 || p.TLS != nil }

// Revoke ends the connections of clients with these grants. What they have reserved is
// given back, and what they are owed is sent. It returns when the loops have listed them.
// Clients that are known only after that are not looked at: Access must not return any of
// these grants from the time on when Revoke is called. Any goroutine may call it.
//
// On a server that is being shut down, or has ended, it does nothing: that ends all
// connections, and each client is read at most once more.
func (s *Server) Revoke(gone func(*engine.Grant) bool) {
	if !s.beginHold() {
		return
	}
	defer s.holds.Done()
	s.onLoops(func(l *loop) {
		for c, g := range l.granted {
			if gone(g) {
				l.revoked = append(l.revoked, c)
			}
		}
	})
}
