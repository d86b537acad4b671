package accept

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/pires/go-proxyproto"
	"golang.org/x/sys/unix"
)

// Proxied is a listener for proxies that say in a header of the PROXY protocol, version 1 or 2, whose connection they
// pass on. The header comes at the beginning of each connection, before TLS, and is taken for the client's address.
// Over TCP, connections of Config.ProxyFrom only are accepted.
type Proxied struct{ net.Listener }

const (
	// maxProxyHeader is how many bytes a header may have: addresses take 232 at most, and the
	// rest is for what proxies add, which is not looked at.
	maxProxyHeader = 2 << 10

	// maxProxyLine is the same for version 1, as the protocol has it.
	maxProxyLine = 107

	// proxyPrefix is the size of version 2's header up to where it says how much more there is.
	proxyPrefix = 16
)

// errNoProxy ends a connection whose first bytes are no header.
var errNoProxy = errors.New("it does not begin with a PROXY header that is understood")

func init() {
	// nginx sends such a line when a client comes by IPv4 to a socket for IPv6.
	proxyproto.V1AcceptIPv4InTCP6 = true
}

// proxyHeaderSize is the size of the header that begins with b, or 0 if that does not show yet.
func proxyHeaderSize(b []byte) (int, error) {
	begins := func(with []byte) bool { return bytes.HasPrefix(b, with[:min(len(b), len(with))]) }
	switch {
	case begins(proxyproto.SIGV2):
		if len(b) < proxyPrefix {
			return 0, nil
		}
		n := proxyPrefix + int(binary.BigEndian.Uint16(b[proxyPrefix-2:]))
		if n <= maxProxyHeader {
			return n, nil
		}
	case begins(proxyproto.SIGV1):
		b = b[:min(len(b), maxProxyLine)]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			return i + 1, nil
		}
		if len(b) < maxProxyLine {
			return 0, nil
		}
	}
	return 0, errNoProxy
}

// parseProxyHeader returns the client that a whole header names. It reports false if the
// connection is the proxy's own, as its health checks are, or the proxy does not know.
func parseProxyHeader(b []byte) (client Endpoint, ok bool, err error) {
	h, err := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(b), len(b)))
	if err != nil {
		return Endpoint{}, false, fmt.Errorf("%w: %w", errNoProxy, err)
	}
	if h.Command.IsLocal() || h.TransportProtocol.IsUnspec() {
		return Endpoint{}, false, nil
	}
	switch a := h.SourceAddr.(type) {
	case *net.TCPAddr:
		addr := a.AddrPort()
		return Endpoint{Addr: netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())}, true, nil
	case *net.UnixAddr:
		return Endpoint{Unix: true}, true, nil
	}
	return Endpoint{}, false, fmt.Errorf("%w: its client speaks %s", errNoProxy, h.SourceAddr.Network())
}

// takeProxyHeader takes the header from the socket, and nothing behind it, if it is there as a whole. p has room for
// it.
func (h *handshake) takeProxyHeader(p []byte) (whole bool, err error) {
	n, err := receive(h.fd, p[:maxProxyHeader], unix.MSG_PEEK)
	switch {
	case err == unix.EAGAIN:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading a PROXY header: %w", err)
	case n == 0:
		return false, io.EOF
	}
	size, err := proxyHeaderSize(p[:n])
	if err != nil || size == 0 || n < size {
		return false, err
	}
	if _, err := receive(h.fd, p[:size], 0); err != nil {
		return false, fmt.Errorf("reading a PROXY header: %w", err)
	}
	client, ok, err := parseProxyHeader(p[:size])
	if err != nil {
		return false, err
	}
	if !ok {
		client = PeerOf(h.fd)
	}
	h.client, h.awaitsProxy = client, false
	return true, nil
}

// locate counts a handshake for the source that its PROXY header names.
func (hs *handshakes) locate(h *handshake) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h.place.taken() {
		hs.locateLocked(h)
	}
}

func (hs *handshakes) locateLocked(h *handshake) {
	h.source = h.client.Source()
	hs.crowd.move(h.place, h.source)
}

// allowed reports whether somebody may connect to the listener. Who may not is disconnected without a word.
func (l *listener) allowed(fd int) bool {
	if !l.proxied {
		return true
	}
	e := PeerOf(fd)
	if e.Unix {
		return true
	}
	a := l.acceptor
	for _, p := range a.cfg.ProxyFrom {
		if p.Contains(e.Addr.Addr()) {
			return true
		}
	}
	a.counts.strangers.Add(1)
	if n, ok := a.strangers.Allow(); ok {
		a.log.Warn("a connection to a listener for proxies comes from elsewhere; it is closed",
			"listener", l.socket.Addr().String(), "peer", e.String(), "unreported", n)
	}
	return false
}
