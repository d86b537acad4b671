package reactor

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trellis/codec"
	"trellis/engine/script"
	"trellis/reactor/internal/buffer"
	"trellis/reactor/internal/stream"
	"trellis/reactor/tlstest"
)

// suites are the versions and suites of TLS that are accepted.
var suites = map[string]func(*tls.Config){
	"1.3":                        func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 },
	"1.2 AES-128-GCM":            suite12(tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
	"1.2 AES-256-GCM":            suite12(tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
	"1.2 ChaCha20":               suite12(tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
	"1.3 without post-quantum":   func(c *tls.Config) { c.MinVersion, c.CurvePreferences = tls.VersionTLS13, []tls.CurveID{tls.X25519} },
	"1.3, and a retry for P-384": func(c *tls.Config) { c.MinVersion, c.CurvePreferences = tls.VersionTLS13, []tls.CurveID{tls.CurveP384} },
}

func suite12(id uint16) func(*tls.Config) {
	return func(c *tls.Config) { c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{id} }
}

// wire is a socket that lets a test change what a tls.Conn writes.
type wire struct {
	net.Conn
	write func(p []byte) (int, error) // nil: as it is
}

func (w *wire) Write(p []byte) (int, error) {
	if w.write != nil {
		return w.write(p)
	}
	return w.Conn.Write(p)
}

// dialWire connects with a suite. prepare is called before the handshake.
func (ts *testServer) dialWire(addr tlsAddr, suite func(*tls.Config), prepare func(*wire)) (*wire, *client) {
	ts.t.Helper()
	nc, err := net.Dial("tcp", addr.String())
	if err != nil {
		ts.t.Fatal(err)
	}
	w := &wire{Conn: nc}
	if prepare != nil {
		prepare(w)
	}
	config := addr.client.Clone()
	suite(config)
	tc := tls.Client(w, config)
	_ = nc.SetDeadline(time.Now().Add(testTimeout))
	if err := tc.Handshake(); err != nil {
		ts.t.Fatal(err)
	}
	return w, newClient(ts.t, tc)
}

func TestHandshakeAndCommandsMayBeCutAnywhere(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 1, hooks{})
	addr := ts.serveTLS(serverTLS())
	for name, suite := range suites {
		t.Run(name, func(t *testing.T) {
			_, c := ts.dialWire(addr, suite, func(w *wire) {
				w.write = func(p []byte) (int, error) {
					for i := range p {
						if _, err := w.Conn.Write(p[i : i+1]); err != nil {
							return i, err
						}
					}
					return len(p), nil
				}
			})
			c.do("use a\r\nlist-tube-used\r\n", "USING a\r\nUSING a\r\n")
		})
	}
}

// The first commands may come with the end of the handshake, and be read with it.
func TestCommandsThatComeWithTheHandshakeAreExecuted(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 1, hooks{})
	addr := ts.serveTLS(serverTLS())
	for range 20 {
		var kept []byte
		flights := 0
		w, c := ts.dialWire(addr, suites["1.3"], func(w *wire) {
			w.write = func(p []byte) (int, error) {
				if flights++; flights == 1 {
					return w.Conn.Write(p) // the hello
				}
				kept = append(kept, p...)
				return len(p), nil
			}
		})
		c.send("use a\r\n")
		c.send("list-tube-used\r\n")
		if _, err := w.Conn.Write(kept); err != nil {
			t.Fatal(err)
		}
		c.expect("USING a\r\nUSING a\r\n")
	}
}

// Whatever bit of a record is changed, nothing of it or behind it is executed, what came
// before is, and the client is told.
// header is how many bytes come before what a record holds. All of them are tried, but of the
// rest some only.
const header = 5

func TestAChangedRecordIsNotExecuted(t *testing.T) {
	t.Parallel()
	for name, suite := range suites {
		t.Run(name, func(t *testing.T) {
			ts := serve(t, "tcp", 1, hooks{})
			addr := ts.serveTLS(serverTLS())
			puts := ts.engine.Snapshot(ts.cfg.Now()).Puts
			for at := 0; ; at++ {
				if at > header && few {
					at += 5
				}
				w, c := ts.dialWire(addr, suite, nil)
				c.do("put 0 0 9 1\r\na\r\n", fmt.Sprintf("INSERTED %d\r\n", puts+1))
				puts++
				changed := false
				w.write = func(p []byte) (int, error) {
					if changed = at < len(p); changed {
						p[at] ^= 1 << (at % 8)
					}
					return w.Conn.Write(p)
				}
				c.send("put 0 0 9 1\r\nb\r\n")
				if !changed { // all bytes were tried
					c.expect(fmt.Sprintf("INSERTED %d\r\n", puts+1))
					break
				}
				if lengthOf := at == 3 || at == 4; lengthOf {
					_ = c.Conn.(*tls.Conn).NetConn().(*wire).Conn.(*net.TCPConn).CloseWrite() // it may wait for more
					_, _ = io.Copy(io.Discard, c.Conn)
				} else if b, err := io.ReadAll(c.Conn); len(b) > 0 || err == nil || !strings.Contains(err.Error(), "remote error: tls:") {
					t.Errorf("byte %d: got %q, %v", at, b, err)
				}
				c.Close()
				ts.until("it is forgotten", func() bool { return ts.sum().Connections == 0 })
				if got := ts.engine.Snapshot(ts.cfg.Now()).Puts; got != puts {
					t.Fatalf("byte %d: %d puts, want %d", at, got, puts)
				}
			}
		})
	}
}

func TestACutRecordIsNotExecuted(t *testing.T) {
	t.Parallel()
	for name, suite := range suites {
		t.Run(name, func(t *testing.T) {
			ts := serve(t, "tcp", 1, hooks{})
			addr := ts.serveTLS(serverTLS())
			for length := 0; ; length++ {
				if length > header && few {
					length += 5
				}
				w, c := ts.dialWire(addr, suite, nil)
				c.do("use a\r\n", "USING a\r\n")
				whole := false
				w.write = func(p []byte) (int, error) {
					whole = length >= len(p)
					return w.Conn.Write(p[:min(length, len(p))])
				}
				c.send("put 0 0 9 1\r\nb\r\n")
				w.write = nil
				_ = w.Conn.(*net.TCPConn).CloseWrite()
				b, err := io.ReadAll(c.Conn)
				if whole {
					if string(b) != "INSERTED 1\r\n" {
						t.Errorf("got %q, %v", b, err)
					}
					break
				}
				if len(b) > 0 || err != nil {
					t.Errorf("%d bytes: got %q, %v", length, b, err)
				}
			}
			if got := ts.engine.Snapshot(ts.cfg.Now()).Puts; got != 1 {
				t.Errorf("%d puts", got)
			}
		})
	}
}

// closeNotify tells the server that the client sends no more, and leaves the socket as
// it is.
func (c *client) closeNotify() {
	c.t.Helper()
	if err := c.Conn.(*tls.Conn).CloseWrite(); err != nil {
		c.t.Fatal(err)
	}
}

func TestACloseNotifyIsAHalfClose(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"tls1.2", "tls1.3"} {
		t.Run(version, func(t *testing.T) {
			ts := serve(t, version, 2, hooks{})
			for input, want := range map[string]string{
				"":                                "",
				"use a\r\n":                       "USING a\r\n",
				"reserve\r\nuse b\r\nreserve\r\n": "TIMED_OUT\r\nUSING b\r\nTIMED_OUT\r\n",
				"use a\r\ndele":                   "USING a\r\n",
				"quit\r\nuse a\r\n":               "",
			} {
				c := ts.dial()
				if input != "" {
					c.send(input)
				}
				c.closeNotify()
				c.expect(want)
				c.expectEOF()
				c.Close() // who has sent more behind a quit is waited for
			}
			c := ts.dial()
			c.send("reserve\r\nuse a\r\n")
			ts.untilWaiting(1)
			c.closeNotify()
			c.expect("TIMED_OUT\r\nUSING a\r\n")
			c.expectEOF()
			ts.until("all are forgotten", func() bool { return ts.acceptor.Stats().Places == 0 })
		})
	}
}

func TestASlowReaderGetsEverythingBehindItsCloseNotify(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"tls1.2", "tls1.3"} {
		t.Run(version, func(t *testing.T) {
			ts := serve(t, version, 1, hooks{})
			c := ts.dial()
			const n = 2000
			send, reply := floodReplies(c, n)
			c.send(send)
			c.closeNotify()
			ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
			c.expectMany(n, reply)
			c.expectEOF()
			ts.until("it is forgotten", func() bool { return ts.acceptor.Stats().Places == 0 })
		})
	}
}

// A client that ends in the middle of a record, or while it is owed replies, leaves
// nothing behind.
func TestNothingIsLeftOfAClientThatVanishes(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tls1.3", 2, hooks{})
	for _, end := range []func(c *client){
		func(c *client) { c.reset() },
		func(c *client) { c.Close() },
		func(c *client) { _ = c.Conn.(*tls.Conn).NetConn().Close() },
	} {
		c := ts.dial()
		send, _ := floodReplies(c, 3000)
		c.send(send)
		ts.until("it is stalled", func() bool { return ts.sum().Stalled == 1 })
		end(c)
		ts.until("it is forgotten", func() bool { return ts.acceptor.Stats().Places == 0 && ts.sum().PendingOutput == 0 })
	}
}

// recorder keeps what is read from a socket.
type recorder struct {
	net.Conn
	read []byte
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.read = append(r.read, p[:n]...)
	return n, err
}

// Otherwise the end of an idle connection looks as if somebody had cut it.
func TestAnIdleClientIsToldOfItsEnd(t *testing.T) {
	t.Parallel()
	const alert = 21 // the type of a record
	d := newDoorkeeper()
	for name, change := range map[string]func(*Config){
		"idle":            func(c *Config) { c.IdleTimeout = time.Hour },
		"unauthenticated": func(c *Config) { c.Access = d },
	} {
		t.Run(name, func(t *testing.T) {
			ts, put := serveStopped(t, "tcp", hooks{}, nil, change)
			r := new(recorder)
			_, c := ts.dialWire(ts.serveTLS(serverTLS()), suites["1.2 AES-128-GCM"], func(w *wire) {
				r.Conn = w.Conn
				w.Conn = r
			})
			ts.until("it is there", func() bool { return ts.sum().Connections == 1 })
			put(time.Hour + time.Second)
			c.expectEOF()
			var last byte
			for b := r.read; len(b) > 5; b = b[5+int(b[3])<<8+int(b[4]):] {
				last = b[0]
			}
			if last != alert {
				t.Errorf("the last record is of type %d", last)
			}
		})
	}
}

// tear has the rest of a record wait for the socket.
func tear(t *stream.TLS, rest []byte) {
	field := func(name string) reflect.Value {
		f := reflect.ValueOf(t).Elem().FieldByName(name)
		return reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem()
	}
	field("held").Set(reflect.ValueOf(buffer.Append(nil, rest)))
	field("torn").SetBool(true)
}

// A client is owed the rest of a record, and takes nothing.
func TestAbortDoesNotWaitForARecordThatIsUnderWay(t *testing.T) {
	t.Parallel()
	conns := make(chan *conn, 1)
	ts := serve(t, "unix", 1, hooks{command: func(c *conn, _ *codec.Command) { conns <- c }})
	l, err := net.Listen("unix", t.TempDir()+"/tls")
	if err != nil {
		t.Fatal(err)
	}
	ts.serving.Go(func() { _ = ts.ServeTLS(l, serverTLS()) })
	nc, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client := newClient(t, tls.Client(nc, &tls.Config{RootCAs: pki().ca.Pool, ServerName: tlstest.Name}))
	client.do("list-tube-used\r\n", "USING default\r\n")
	c := <-conns
	ts.onLoops(func(*loop) {
		junk := make([]byte, 64<<10)
		for err == nil {
			_, err = unix.Write(c.FD(), junk)
		}
		tear(&c.tlsConn().tls, []byte("the rest"))
	})
	if err != unix.EAGAIN {
		t.Fatal(err)
	}
	client.closeNotify()
	ts.until("it is being ended", func() bool { return ts.sum().Ending == 1 })
	done := make(chan struct{})
	go func() {
		defer close(done)
		ts.Abort()
	}()
	select {
	case <-done:
	case <-time.After(testTimeout):
		t.Error("it waits")
		client.Close()
		<-done
	}
	ts.engine.Discard()
}

func TestShutdownInTheMiddleOfARecord(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 1, hooks{})
	w, c := ts.dialWire(ts.serveTLS(serverTLS()), suites["1.3"], nil)
	c.do("use a\r\n", "USING a\r\n")
	w.write = func(p []byte) (int, error) { return w.Conn.Write(p[:len(p)/2]) }
	c.send("use b\r\n")
	before := ts.sum().BytesIn
	ts.until("half of it was read", func() bool { return ts.sum().BytesIn >= before })
	if err := <-ts.shutDown(t.Context()); err != nil {
		t.Error(err)
	}
	c.expectEOF()
}

func TestAPlainConnectionDoesNotPayForTLS(t *testing.T) {
	t.Parallel()
	if n := unsafe.Sizeof(conn{}); n > 224 {
		t.Errorf("a plain connection has %d bytes", n)
	}
	if n := unsafe.Sizeof(tlsConn{}); n > 320 {
		t.Errorf("a TLS connection has %d bytes beside that of crypto/tls", n)
	}
}

// FuzzTLS sends commands in records of any size, and may change a byte on the way. The
// server executes them as if they had come over a plain connection, or up to where the
// change is.
func FuzzTLS(f *testing.F) {
	for i, c := range script.Corpus() {
		if i%10 != 0 && few {
			continue
		}
		if in := c.Input(); len(in) < 4<<10 {
			f.Add(in, uint8(0), uint16(0))
		}
	}
	f.Add([]byte("use a\r\nput 0 0 60 3\r\nabc\r\nreserve\r\nquit\r\n"), uint8(5), uint16(60))
	f.Fuzz(func(t *testing.T, in []byte, cut uint8, flip uint16) {
		ts := serve(t, "tcp", 2, hooks{})
		witness := ts.dial()
		w, c := ts.dialWire(ts.serveTLS(serverTLS()), suites["1.3"], nil)
		sent := 0
		w.write = func(p []byte) (int, error) {
			if at := int(flip) - 1 - sent; at >= 0 && at < len(p) {
				p[at] ^= 0x55
			}
			sent += len(p)
			return w.Conn.Write(p)
		}
		replies := make(chan []byte, 1)
		go func() {
			b, _ := io.ReadAll(c.Conn)
			replies <- b
		}()
		feed(c, in, cut)
		_ = c.Conn.(*tls.Conn).CloseWrite()
		_ = w.Conn.(*net.TCPConn).CloseWrite()
		b := <-replies
		if len(b) > 0 && !strings.HasSuffix(string(b), "\r\n") && flip == 0 {
			t.Errorf("the last reply is cut: %.100q", b[max(0, len(b)-100):])
		}
		witness.do("use witness\r\n", "USING witness\r\n")
		ts.until("the client is forgotten", func() bool { return ts.acceptor.Stats().Places == 1 && ts.sum().Connections == 1 })
		if s := ts.sum(); s.Panics+s.OverLimit+s.OverOutput != 0 || s.PendingInput+s.PendingOutput+s.Stalled != 0 {
			t.Errorf("%+v", s)
		}
	})
}
