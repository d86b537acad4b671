package bench

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// The ports of addresses that name none.
const (
	DefaultPort    = "11300" // that of beanstalkd and its clients
	DefaultTLSPort = "11400" // trellisd's for TLS
)

// An Address is where a server listens: a TCP address or a unix socket.
type Address struct {
	// Network is "tcp" or "unix", as package net names them.
	Network string
	// Name is "host:port", or the path of the socket.
	Name string

	tcp netip.AddrPort // the zero value for a unix socket
	tls *tls.Config    // nil: plain text
}

// ParseAddress understands "host:port", "host", ":port", "[::1]:port" and "tcp://host:port" for TCP, and
// "unix:/path", "unix:///path" and "/path" for unix sockets. A host name is resolved here, once.
func ParseAddress(s string) (Address, error) { return parseAddress(s, DefaultPort, nil) }

// ParseTLSAddress is ParseAddress for a server that speaks TLS. Where config names no server, the certificate must be
// that of the host in s, or of localhost for a unix socket.
func ParseTLSAddress(s string, config *tls.Config) (Address, error) {
	return parseAddress(s, DefaultTLSPort, config)
}

func parseAddress(s, defaultPort string, config *tls.Config) (Address, error) {
	a, host := Address{Network: "unix", tls: config}, "localhost"
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		a.Name = strings.TrimPrefix(path, "//")
	} else if strings.HasPrefix(s, "/") {
		a.Name = s
	} else {
		s = strings.TrimPrefix(s, "tcp://")
		var port string
		var err error
		if host, port, err = net.SplitHostPort(s); err != nil {
			host, port = strings.Trim(s, "[]"), defaultPort
		}
		host = cmp.Or(host, "127.0.0.1")
		tcp, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, port))
		if err != nil {
			return Address{}, fmt.Errorf("address %q: %w", s, err)
		}
		a.Network, a.tcp = "tcp", netip.AddrPortFrom(tcp.AddrPort().Addr().Unmap(), uint16(tcp.Port))
		a.Name = a.tcp.String()
	}
	if config != nil && config.ServerName == "" {
		a.tls = config.Clone()
		a.tls.ServerName = host
	}
	return a, nil
}

// TLS returns the TLS configuration for connections to the server, nil for plain text. The caller must not change it.
func (a *Address) TLS() *tls.Config { return a.tls }

// Dial connects to the server. timeout bounds connecting, and with TLS the handshake too.
func (a *Address) Dial(timeout time.Duration) (net.Conn, error) {
	d := &net.Dialer{Timeout: timeout}
	if a.tls != nil {
		return tls.DialWithDialer(d, a.Network, a.Name, a.tls)
	}
	return d.Dial(a.Network, a.Name)
}

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
