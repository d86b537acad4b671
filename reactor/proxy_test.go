package reactor

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"
)

// proxyHeader is one of version 2, from an address to one that nobody looks at.
func proxyHeader(from string) string {
	to := &net.TCPAddr{IP: net.ParseIP("198.51.100.1"), Port: 443}
	b, err := proxyproto.HeaderProxyFromAddrs(2, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from)), to).Format()
	if err != nil {
		panic(err)
	}
	return string(b)
}

// prefixed is the beginning of a header of version 2, for a block of so many bytes.
func prefixed(command, family byte, block int) string {
	return string(proxyproto.SIGV2) + string([]byte{command, family, byte(block >> 8), byte(block)})
}

// serveProxies has a server that lets proxies on this machine connect.
func serveProxies(t *testing.T, h hooks, change func(*Config)) *testServer {
	t.Helper()
	ts, _ := serveStopped(t, "tcp", h, nil, func(c *Config) {
		c.Extensions = true
		c.ProxyFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		if change != nil {
			change(c)
		}
	})
	return ts
}

// listenProxied makes the server serve one more listener, for proxies. config is nil for clients
// that do not speak TLS.
func (ts *testServer) listenProxied(l net.Listener, err error, config *tls.Config) net.Addr {
	ts.t.Helper()
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.serving.Go(func() {
		err := ts.acceptor.Serve(Proxied{Listener: l}, config)
		if err != nil && !errors.Is(err, ErrClosed) {
			ts.t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr()
}

func (ts *testServer) proxiedTCP(config *tls.Config) net.Addr {
	ts.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	return ts.listenProxied(l, err, config)
}

// sawAs tells as whose connection the server shows a client's.
func (c *client) sawAs() string {
	c.t.Helper()
	c.send("stats-conn\r\n")
	for line := range strings.Lines(c.data()) {
		if addr, ok := strings.CutPrefix(line, "addr: "); ok {
			return strings.Trim(strings.TrimSpace(addr), `"`)
		}
	}
	c.t.Fatal("there is no address")
	return ""
}

func TestAClientIsDescribedAsTheOneThatItsProxyNames(t *testing.T) {
	t.Parallel()
	ts := serveProxies(t, hooks{}, nil)
	plain, secure := ts.proxiedTCP(nil), ts.proxiedTCP(serverTLS())
	for _, addr := range []net.Addr{plain, secure} {
		nc, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		_, _ = io.WriteString(nc, proxyHeader("192.0.2.8:40000"))
		if addr == secure {
			nc = tls.Client(nc, tlsClient())
		}
		if got := newClient(t, nc).sawAs(); got != "192.0.2.8:40000" {
			t.Errorf("the client is at %s", got)
		}
	}
}

func TestAProxysClientsHaveSharesOfTheirOwnBeforeTheToken(t *testing.T) {
	t.Parallel()
	ts := serveProxies(t, hooks{}, func(c *Config) { c.Access, c.Loops, c.MaxConnections = newDoorkeeper(), 1, 64 })
	addr := ts.proxiedTCP(nil)
	connect := func(from string) *client {
		c := dial(t, addr)
		c.send(proxyHeader(from))
		return c
	}
	good := connect("192.0.2.1:1")
	ts.until("it is there", func() bool { return ts.sum().Connections == 1 })
	for i := range 100 {
		connect(fmt.Sprintf("192.0.2.2:%d", i+1))
	}
	ts.until("the others have come", func() bool { return ts.Stats().Accepted == 101 })
	good.do("auth good\r\n", "AUTHENTICATED\r\n")
}

// Whoever comes by a proxy is not the proxy.
func TestAProxysUserHasNoRightsOfItsClients(t *testing.T) {
	t.Parallel()
	d := newDoorkeeper()
	d.users = true
	ts := serveProxies(t, hooks{}, func(c *Config) { c.Access = d })
	dir, err := os.MkdirTemp("", "reactor")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	addr := ts.listenProxied(l, err, nil)
	for _, header := range []string{"PROXY UNKNOWN\r\n", prefixed(0x20, 0, 0), prefixed(0x21, 0x31, 216) + strings.Repeat("\x00", 216), proxyHeader("192.0.2.1:1")} {
		c := dial(t, addr)
		c.send(header)
		c.do("list-tubes\r\n", "UNKNOWN_COMMAND\r\n")
		c.expectEOF()
	}
	for _, p := range d.asked() {
		if p.UID >= 0 {
			t.Errorf("%+v", p)
		}
	}
}
