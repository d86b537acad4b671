package reactor

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"trellis/engine"
)

// PeerAddr implements engine.Carrier.
func (l *loop) PeerAddr(s *engine.Session) string {
	addr, _ := connOf(s).peerAddr()
	return addr
}

// peer asks the system who is at the other end.
func (c *conn) peer() Peer {
	p := Peer{UID: -1}
	if c.listener.tls() {
		state := c.tls().tls.ConnectionState()
		p.TLS = &state
	}
	addr, onUnix := c.peerAddr()
	p.Addr = addr
	if onUnix {
		if uid, err := peerUID(int(c.fd)); err == nil {
			p.UID = uid
		}
	}
	return p
}

// peerAddr is the address at the other end, "" if the system does not say. onUnix tells
// that a client has connected to a Unix socket.
func (c *conn) peerAddr() (addr string, onUnix bool) {
	if c.listener.own() {
		return ownAddr, false
	}
	return peerAddr(int(c.fd))
}

// peerAddr is what the system says of a socket's peer.
func peerAddr(fd int) (addr string, onUnix bool) {
	sa, err := unix.Getpeername(fd)
	if err != nil {
		return "", false // it is gone
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)).String(), false
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port)).String(), false
	case *unix.SockaddrUnix:
		return "unix", true
	}
	return "", false
}
