package bench

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// DefaultPort is the port that beanstalkd and its clients use when none is named.
const DefaultPort = "11300"

// An Address is where a server listens: a TCP address or a unix socket.
type Address struct {
	// Network is "tcp" or "unix", as package net names them.
	Network string
	// Name is "host:port", or the path of the socket.
	Name string

	tcp netip.AddrPort // the zero value for a unix socket
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
	return Address{Network: "tcp", Name: ap.String(), tcp: ap}, nil
}

func unixAddress(path string) Address { return Address{Network: "unix", Name: path} }

// TCP returns the address as numbers, the zero value for a unix socket.
func (a *Address) TCP() netip.AddrPort { return a.tcp }

// Loopback reports whether the server is on this machine: it listens on a loopback address or a unix socket.
func (a *Address) Loopback() bool { return a.Network == "unix" || a.tcp.Addr().IsLoopback() }

// String returns the address in a form that ParseAddress takes.
func (a Address) String() string {
	if a.Network == "unix" {
		return "unix:" + a.Name
	}
	return a.Name
}

// MarshalText returns what String does.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }
