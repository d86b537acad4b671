package accept

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// Endpoint is the other end of a connection. The zero Endpoint is one that is gone.
type Endpoint struct {
	Addr netip.AddrPort // of TCP
	Unix bool           // it is a Unix socket
	Own  bool           // it is this process: see Acceptor.Connect
}

// ownAddr is the address of the peer of a connection from inside the process. The console is what connects in this way.
const ownAddr = "console"

// String is its address and port, "unix", or "console" for this process.
func (e Endpoint) String() string {
	switch {
	case e.Own:
		return ownAddr
	case e.Unix:
		return "unix"
	case e.Addr.IsValid():
		return e.Addr.String()
	}
	return ""
}

// Source is where the endpoint is, for shares of places.
func (e Endpoint) Source() Source { return sourceOf(e.Addr.Addr()) }

// PeerOf is what the system says of a socket's peer.
func PeerOf(fd int) Endpoint {
	sa, err := unix.Getpeername(fd)
	if err != nil {
		return Endpoint{}
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))}
	case *unix.SockaddrInet6:
		return Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))}
	case *unix.SockaddrUnix:
		return Endpoint{Unix: true}
	}
	return Endpoint{}
}
