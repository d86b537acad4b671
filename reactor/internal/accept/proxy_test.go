package accept

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

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

// serveProxies is serve for proxies on this machine.
func serveProxies(t *testing.T, h hooks, change func(*Config)) *testServer {
	t.Helper()
	return serve(t, h, func(c *Config) {
		c.ProxyFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		if change != nil {
			change(c)
		}
	})
}

// proxiedTCP accepts on one more socket, for proxies. config is nil for clients that do not speak TLS.
func (ts *testServer) proxiedTCP(config *tls.Config) net.Addr {
	ts.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	return ts.listenOn(Proxied{l}, err, config)
}

var proxyHeaders = []struct{ header, client string }{
	{"PROXY TCP4 192.0.2.7 198.51.100.1 40000 443\r\n", "192.0.2.7:40000"},
	{"PROXY TCP6 2001:db8::7 2001:db8::1 40000 443\r\n", "[2001:db8::7]:40000"},
	{"PROXY TCP6 192.0.2.7 2001:db8::1 40000 443\r\n", "192.0.2.7:40000"}, // as nginx has it
	{"PROXY UNKNOWN\r\n", "its own"},
	{"PROXY UNKNOWN " + strings.Repeat("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ", 2) + "65535 65535\r\n", "its own"},
	{proxyHeader("192.0.2.8:40000"), "192.0.2.8:40000"},
	{proxyHeader("[2001:db8::8]:40000"), "[2001:db8::8]:40000"},
	{proxyHeader("[::ffff:192.0.2.9]:40000"), "192.0.2.9:40000"},
	{prefixed(0x20, 0x00, 0), "its own"},                              // a health check
	{prefixed(0x20, 0x11, 7) + "ignored", "its own"},                  // the same, longer
	{prefixed(0x21, 0x31, 216) + strings.Repeat("\x00", 216), "unix"}, // its client came by a Unix socket
	{
		prefixed(0x21, 0x11, 12+3+1500) + "\xc0\x00\x02\x07\xc6\x33\x64\x01\x9c\x40\x01\xbb" +
			"\xea\x05\xdc" + strings.Repeat("x", 1500), "192.0.2.7:40000",
	},
}

func TestAClientIsTheOneThatItsProxyNames(t *testing.T) {
	t.Parallel()
	watchedOrNot(t, func(t *testing.T, h hooks) {
		ts := serveProxies(t, h, nil)
		plain, secure := ts.proxiedTCP(nil), ts.proxiedTCP(serverTLS())
		for _, tt := range proxyHeaders {
			for _, addr := range []net.Addr{plain, secure} {
				nc, err := net.Dial("tcp", addr.String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { nc.Close() })
				_, _ = io.WriteString(nc, tt.header)
				if addr == secure {
					nc = tls.Client(nc, tlsClient())
				}
				want := tt.client
				if want == "its own" {
					want = nc.LocalAddr().String()
				}
				if got := newClient(t, nc).sawAs(); got != want {
					t.Errorf("%q: the client is at %s, want %s", tt.header, got, want)
				}
			}
		}
		if n := ts.Handshakes().count(HandshakeOK); n != uint64(len(proxyHeaders)) {
			t.Errorf("%d TLS handshakes are counted, want %d", n, len(proxyHeaders))
		}
	})
}

func TestAPROXYHeaderMayComeInPiecesAndWithCommandsBehindIt(t *testing.T) {
	t.Parallel()
	watchedOrNot(t, func(t *testing.T, h hooks) {
		ts := serveProxies(t, h, nil)
		addr := ts.proxiedTCP(nil)
		for _, header := range []string{proxyHeaders[0].header, proxyHeader("192.0.2.7:40000")} {
			all := header + "use a\r\nuse b\r\n"
			for cut := 1; cut < len(all); cut++ {
				c := dial(t, addr)
				c.send(all[:cut])
				ts.until("it is there", func() bool { return ts.Handshakes().Pending+int(ts.open.Load()) > 0 })
				c.do(all[cut:], "USING a\r\nUSING b\r\n")
				if got := c.sawAs(); got != "192.0.2.7:40000" {
					t.Fatalf("cut at %d: the client is at %s", cut, got)
				}
				c.Close()
				ts.until("it is gone", func() bool { return ts.open.Load() == 0 })
			}
		}
	})
}

func TestWhatIsNoPROXYHeaderIsNotServed(t *testing.T) {
	t.Parallel()
	watchedOrNot(t, func(t *testing.T, h hooks) {
		ts := serveProxies(t, h, nil)
		plain, secure := ts.proxiedTCP(nil), ts.proxiedTCP(serverTLS())
		inputs := []string{
			"put 0 0 60 1\r\nx\r\n",
			"PROXY\r\nput 0 0 60 1\r\nx\r\n",
			"PROXY TCP4 192.0.2.7 198.51.100.1 40000 443\nput 0 0 60 1\r\nx\r\n",
			"PROXY TCP4 192.0.2.700 198.51.100.1 40000 443\r\n",
			"PROXY TCP4 " + strings.Repeat("1", 200),
			"PROXY  TCP4 192.0.2.7 198.51.100.1 40000 443\r\n",
			prefixed(0x21, 0x11, 4) + "1234",
			prefixed(0x22, 0x11, 12) + "123456789012",
			prefixed(0x21, 0x12, 12) + "123456789012", // UDP
			prefixed(0x21, 0x00, 0),
			prefixed(0x21, 0x11, maxProxyHeader),
			"\x16\x03\x01\x00\x05hello",
		}
		for _, input := range inputs {
			for _, addr := range []net.Addr{plain, secure} {
				c := dial(t, addr)
				c.send(input)
				if b, _ := io.ReadAll(c); len(b) > 0 {
					t.Errorf("%q is answered %q", input, b)
				}
			}
		}
		ts.until("they are counted", func() bool { return ts.Handshakes().count(HandshakeProxy) == uint64(2*len(inputs)) })
		ts.until("their places are free", func() bool { return ts.Stats().Places == 0 })
		if st := ts.Stats(); st.Accepted != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestAConnectionForProxiesIsTakenFromNobodyElse(t *testing.T) {
	t.Parallel()
	ts := serveProxies(t, hooks{}, nil)
	addr := ts.proxiedTCP(nil)
	stranger := dialFrom(t, "127.0.0.2", addr)
	_, _ = io.WriteString(stranger, "PROXY TCP4 127.0.0.1 127.0.0.1 1 1\r\nput 0 0 60 1\r\nx\r\n")
	if b, _ := io.ReadAll(stranger); len(b) > 0 {
		t.Errorf("a stranger was answered %q", b)
	}
	if st := ts.Stats(); st.Strangers != 1 || st.Accepted != 0 {
		t.Errorf("%+v", st)
	}
	log := ts.log.String()
	if !strings.Contains(log, "comes from elsewhere") || !strings.Contains(log, "peer=127.0.0.2:") {
		t.Errorf("the log:\n%s", log)
	}
}

func TestAPROXYHeaderHasItsTime(t *testing.T) {
	t.Parallel()
	watchedOrNot(t, func(t *testing.T, h hooks) {
		ts := serveProxies(t, h, func(c *Config) { c.Handshake = 50 * time.Millisecond })
		for _, config := range []*tls.Config{nil, serverTLS()} {
			c := dial(t, ts.proxiedTCP(config))
			_, _ = io.WriteString(c, "PROXY TCP4 ") // it may be late
			if b, err := io.ReadAll(c); len(b) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %q, %v", b, err)
			}
		}
		ts.until("both are counted", func() bool { return ts.Handshakes().count(HandshakeTimeout) == 2 })
	})
}

func TestAProxysClientsHaveSharesOfTheirOwnBeforeTheHandshake(t *testing.T) {
	t.Parallel()
	ts := serveProxies(t, hooks{}, func(c *Config) { c.MaxConnections = 64 })
	addr := ts.proxiedTCP(serverTLS())
	connect := func(from string) net.Conn {
		c := dial(t, addr)
		c.send(proxyHeader(from))
		return c.Conn
	}
	early := connect("192.0.2.1:2")
	located := func() int {
		hs := &ts.handshakes
		hs.mu.Lock()
		defer hs.mu.Unlock()
		return hs.crowd.counts[sourceOf(netip.MustParseAddr("192.0.2.1"))]
	}
	ts.until("its header was read", func() bool { return located() == 1 })
	for i := range 100 {
		connect(fmt.Sprintf("192.0.2.2:%d", i+1))
	}
	ts.until("the others have come", func() bool {
		st := ts.Handshakes()
		return st.Pending+int(st.count(HandshakeCrowded)) == 101
	})
	newClient(t, tls.Client(early, tlsClient())).do("use a\r\n", "USING a\r\n")
}

func TestShutdownAndAbortEndConnectionsWhosePROXYHeaderHasNotCome(t *testing.T) {
	t.Parallel()
	watchedOrNot(t, func(t *testing.T, h hooks) {
		for _, end := range []func(*testServer){(*testServer).shutDown, (*testServer).abort} {
			ts := serveProxies(t, h, nil)
			c := dial(t, ts.proxiedTCP(nil))
			c.send("PROXY TCP4 ")
			ts.until("it is there", func() bool { return ts.Handshakes().Pending == 1 })
			end(ts)
			if b, _ := io.ReadAll(c); len(b) > 0 || ts.Stats().Places != 0 {
				t.Errorf("got %q, %d places are taken", b, ts.Stats().Places)
			}
		}
	})
}

func FuzzPROXYHeader(f *testing.F) {
	for _, tt := range proxyHeaders {
		f.Add([]byte(tt.header))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := proxyHeaderSize(b)
		if err != nil || n == 0 || n > len(b) {
			return
		}
		if n > maxProxyHeader {
			t.Fatalf("%d bytes", n)
		}
		for cut := range n {
			if m, err := proxyHeaderSize(b[:cut]); err != nil || m != 0 && m != n {
				t.Fatalf("of %d bytes the first %d make %d, %v", n, cut, m, err)
			}
		}
		client, ok, err := parseProxyHeader(b[:n])
		if err == nil && ok != (client != Endpoint{}) {
			t.Fatalf("%v, %t", client, ok)
		}
	})
}
