package accept

import (
	"crypto/tls"
	"unique"

	"trellis/reactor/internal/tlsmem"
)

// Arrival is a connection on its way to a loop. It has a place, unless it is one of Connect.
type Arrival struct {
	// FD is the socket, which does not block. It is the loop's to close, also if it cannot take the connection in.
	FD int
	// Listener is the number of the listener that has accepted it, or Own.
	Listener ListenerID
	// Client is the client that a PROXY header names; nil without one.
	Client *Endpoint
	// TLS is the connection above the socket after its handshake; nil without TLS. It is not to be used before Wire,
	// on which it lies, has other ends than the handshake.
	TLS  *tls.Conn
	Wire *tlsmem.Wire
	// Certificates are the client's certificate and those behind it, in DER, one after the other; the zero Handle
	// if it has sent none. Connections with the same share them.
	Certificates unique.Handle[string]

	by *listener // nil for Own
}

// Failed reports that a loop could not take in a connection that was posted to it.
func (a *Acceptor) Failed(n Arrival, err error) {
	if err = a.failed(n, err); err != nil {
		select {
		case n.by.shortages <- err:
		default:
		}
	}
}

// failed frees the place of a connection that its loop could not take in. It returns err if that is a shortage.
func (a *Acceptor) failed(n Arrival, err error) error {
	a.counts.refused.Add(1)
	if n.by == nil {
		return nil
	}
	a.taken.Add(-1)
	if isShortage(err) {
		return err
	}
	a.log.Debug("connection refused", "listener", n.by.socket.Addr(), "error", err)
	return nil
}
