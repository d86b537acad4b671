package bench

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultPort is the port that beanstalkd and its clients use when none is named.
const DefaultPort = "11300"

// An Address is where a server listens: a TCP address or a unix socket.
type Address struct {
	// Network is "tcp" or "unix", as package net names them.
	Network string
	// Name is "host:port", or the path of the socket.
	Name string

	tcp      netip.AddrPort // the zero value for a unix socket
	loopback bool
}

// ParseAddress understands "host:port", "host", ":port", "[::1]:port" and "tcp://host:port" for TCP, and
// "unix:/path", "unix:///path" and "/path" for unix sockets. A host name is resolved here, once.
func ParseAddress(s string) (Address, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return unixAddress(strings.TrimPrefix(path, "//")), nil
	}
	if strings.HasPrefix(s, "/") {
		return unixAddress(s), nil
	}
	s = strings.TrimPrefix(s, "tcp://")
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = strings.Trim(s, "[]"), DefaultPort
	}
	if host == "" {
		host = "127.0.0.1"
	}
	tcp, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return Address{}, fmt.Errorf("address %q: %w", s, err)
	}
	ap := netip.AddrPortFrom(tcp.AddrPort().Addr().Unmap(), uint16(tcp.Port))
	return Address{Network: "tcp", Name: ap.String(), tcp: ap, loopback: ap.Addr().IsLoopback()}, nil
}

func unixAddress(path string) Address { return Address{Network: "unix", Name: path, loopback: true} }

// sockaddr returns the address as the kernel wants it, and its family. Each call makes one, because its users write
// into it.
func (a *Address) sockaddr() (unix.Sockaddr, int) {
	switch ip := a.tcp.Addr(); {
	case ip.Is4():
		return &unix.SockaddrInet4{Port: int(a.tcp.Port()), Addr: ip.As4()}, unix.AF_INET
	case ip.Is6():
		return &unix.SockaddrInet6{Port: int(a.tcp.Port()), Addr: ip.As16()}, unix.AF_INET6
	}
	return &unix.SockaddrUnix{Name: a.Name}, unix.AF_UNIX
}

// String returns the address in a form that ParseAddress takes.
func (a Address) String() string {
	if a.Network == "unix" {
		return "unix:" + a.Name
	}
	return a.Name
}

// MarshalText returns what String does.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// portsPerSource is how many connections leave from one source address: well below the 28,000 ephemeral ports that
// Linux hands out by default, so that connections of the recent past do not stand in the way.
const portsPerSource = 20000

// dial begins a connection. It never blocks: inProgress tells that the descriptor becomes writable when the
// connection stands or has failed. n numbers the connections of this process; on IPv4 loopback it spreads them over
// source addresses, because one has too few ports for more than 28,000.
func dial(a *Address, n int) (fd int, inProgress bool, err error) {
	sa, family := a.sockaddr()
	fd, err = newSocket(family)
	if err != nil {
		return -1, false, err
	}
	if a.Network == "tcp" {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		if src := n / portsPerSource; err == nil && src > 0 && a.loopback && family == unix.AF_INET {
			err = bindSource(fd, [4]byte{127, 0, 1, byte(src)})
		}
		if err != nil {
			unix.Close(fd)
			return -1, false, err
		}
	}
	for {
		err = unix.Connect(fd, sa)
		if err != unix.EINTR {
			break
		}
	}
	switch err {
	case nil:
		return fd, false, nil
	case unix.EINPROGRESS:
		return fd, true, nil
	}
	unix.Close(fd)
	return -1, false, err
}
