package accept

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trellis/reactor/tlstest"
)

// partial is how many silent clients have sent something.
func (ts *testServer) partial() (n int) {
	hs := &ts.handshakes
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range hs.silent.byNumber {
		if h.watch.bytes > 1 {
			n++
		}
	}
	return n
}

func TestASilentClientCostsNoGoroutineAndNoToken(t *testing.T) {
	ts := serve(t, hooks{}, nil)
	addr := ts.serveTLS(serverTLS())
	dial(t, addr).do("use a\r\n", "USING a\r\n")
	hello := helloOf(t)
	const each = 50
	before := runtime.NumGoroutine()
	for _, part := range []int{0, 1, recordHeader, len(hello) - 1} {
		connectAll(t, addr, each, hello[:part])
	}
	ts.until("what they have sent was looked at", func() bool { return ts.partial() == 3*each })
	if begun, fresh, _ := ts.lines(); begun != 0 || fresh != 4*each {
		t.Errorf("%d handshakes have begun, and %d have not", begun, fresh)
	}
	if more := runtime.NumGoroutine() - before; more >= each {
		t.Errorf("there are %d more goroutines", more)
	}
	if n := ts.idleTokens(); n != max(1, processors/2) {
		t.Errorf("%d tokens are left", n)
	}
}

// splitting is a client's end of a connection that sends the hello in pieces.
type splitting struct {
	net.Conn
	at   []int  // where a piece ends
	sent func() // is called behind each piece but the last
}

func (c *splitting) Write(p []byte) (int, error) {
	from := 0
	for _, to := range c.at {
		if to = min(to, len(p)-1); to > from {
			if _, err := c.Conn.Write(p[from:to]); err != nil {
				return from, err
			}
			from = to
			c.sent()
		}
	}
	c.at = nil
	n, err := c.Conn.Write(p[from:])
	return from + n, err
}

func TestAHelloThatComesInPiecesIsServedWhenItIsComplete(t *testing.T) {
	t.Parallel()
	ts := serve(t, hooks{}, nil)
	addr := ts.serveTLS(serverTLS())
	long := addr.client.Clone()
	for i := range 500 {
		long.NextProtos = append(long.NextProtos, fmt.Sprintf("protocol-%05d", i)) // more than is looked at
	}
	for name, config := range map[string]*tls.Config{"short": addr.client, "long": long} {
		for _, at := range [][]int{{1}, {4}, {5}, {6}, {100}, {4000}, {1 << 20}, {1, 2, 3, 4, 5, 6, 7, 1 << 20}} {
			t.Run(fmt.Sprintf("%s/%v", name, at), func(t *testing.T) {
				nc, err := net.Dial("tcp", addr.String())
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				_ = nc.SetDeadline(time.Now().Add(testTimeout))
				c := tls.Client(&splitting{nc, at, func() {
					ts.until("it was looked at", func() bool { return ts.partial() == 1 })
				}}, config)
				if _, err := io.WriteString(c, "use a\r\n"); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, len("USING a\r\n"))
				if _, err := io.ReadFull(c, got); err != nil || string(got) != "USING a\r\n" {
					t.Errorf("got %q, %v", got, err)
				}
			})
		}
	}
	if st := ts.untilHandshakes(); st.count(HandshakeOK) != 16 {
		t.Errorf("%+v", st)
	}
}

// The system can then not keep the whole hello for whoever waits for it.
func TestAHelloIsServedThatIsBiggerThanTheSocketsBuffer(t *testing.T) {
	t.Parallel()
	ts := serve(t, hooks{}, nil)
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
				t.Error(err)
			}
		})
	}}
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ts.listenOn(l, nil, serverTLS())
	config := &tls.Config{RootCAs: pki().ca.Pool, ServerName: tlstest.Name}
	for i := range 900 {
		config.NextProtos = append(config.NextProtos, fmt.Sprintf("protocol-%05d", i))
	}
	dial(t, tlsAddr{l.Addr(), config}).do("use a\r\n", "USING a\r\n")
}

// The descriptors of clients that are given up are soon those of others, on the same loop.
func TestNobodyIsMistakenForASilentClientThatHadItsDescriptor(t *testing.T) {
	t.Parallel()
	ts := serve(t, hooks{}, func(c *Config) { c.MaxConnections = 40 })
	addr := ts.serveTLS(serverTLS())
	for range 30 {
		var flood []net.Conn
		for i := range 20 { // twice as many as may be
			c, err := net.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			if i%3 == 0 {
				_, _ = io.WriteString(c, "stats\r\n")
			}
			flood = append(flood, c)
		}
		var good []*client
		for i, c := range flood {
			c.Close()
			if i%4 == 0 {
				good = append(good, ts.dial(), dial(t, addr))
			}
		}
		for _, c := range good {
			c.do("use a\r\n", "USING a\r\n")
			c.do("use b\r\n", "USING b\r\n")
			c.Close()
		}
	}
	if st := ts.untilHandshakes(); st.count(HandshakeOK) != 30*5 {
		t.Errorf("%+v", st)
	}
}

// recorded is a client that has sent something, and nothing more.
type recorded struct {
	net.Conn
	in io.Reader
}

var errNoMore = errors.New("the record has ended")

func (s recorded) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	if err == io.EOF {
		err = errNoMore
	}
	return n, err
}
func (recorded) Write(p []byte) (int, error)      { return len(p), nil }
func (recorded) SetWriteDeadline(time.Time) error { return nil }

// FuzzFirstRecord compares what is said of a client's first bytes with what crypto/tls does.
func FuzzFirstRecord(f *testing.F) {
	config := serverTLS()
	here, there := net.Pipe()
	go func() {
		_ = tls.Client(here, &tls.Config{ServerName: tlstest.Name}).Handshake()
		here.Close()
	}()
	hello := make([]byte, 4<<10)
	n, err := there.Read(hello)
	there.Close()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(hello[:n])
	f.Add(hello[:n-1])
	f.Add([]byte("stats\r\n"))
	f.Add([]byte(strings.Repeat("stats\r\n", 1000)))
	f.Add([]byte{22, 3, 1, 0, 5, 1, 0, 0, 1, 3})
	f.Add([]byte{22, 3, 1, 0x40, 0})
	f.Add([]byte{22, 3, 1, 0x40, 1})
	f.Add([]byte{22, 15, 1, 0, 0})
	f.Add([]byte{22, 16, 1, 0, 4})
	f.Add([]byte{21, 3, 3, 0, 2, 2, 80})
	f.Add([]byte{0x80, 0x2e, 1, 0, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		err := tls.Server(recorded{in: bytes.NewReader(b)}, config).Handshake()
		var header tls.RecordHeaderError
		refused := errors.As(err, &header) && header.Conn != nil &&
			bytes.Equal(header.RecordHeader[:], b[:recordHeader]) // not a later record
		if isNoTLS(b) != refused || refused && err.Error() != errNoTLS.Error() {
			t.Errorf("%q is no TLS: %t; crypto/tls: %v", b, isNoTLS(b), err)
		}
		if refused {
			return
		}
		want := firstRecord(b)
		if want < recordHeader || want > maxBareInput {
			t.Errorf("%q: %d bytes are waited for", b, want)
		}
		if len(b) < want && !errors.Is(err, errNoMore) {
			t.Errorf("%q: %d bytes are waited for; crypto/tls: %v", b, want, err)
		}
	})
}
