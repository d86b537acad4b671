package reactor

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// peer asks the system who is at the other end.
func (c *conn) peer() Peer {
	p := Peer{UID: -1}
	if c.listener.own() {
		p.Addr = ownAddr
		return p
	}
	if c.listener.tls() {
		state := c.tls().tls.ConnectionState()
		p.TLS = &state
	}
	sa, err := unix.Getpeername(int(c.fd))
	if err != nil {
		return p // it is gone
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		p.Addr = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)).String()
	case *unix.SockaddrInet6:
		p.Addr = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port)).String()
	case *unix.SockaddrUnix:
		p.Addr = "unix"
		if uid, err := peerUID(int(c.fd)); err == nil {
			p.UID = uid
		}
	}
	return p
}
