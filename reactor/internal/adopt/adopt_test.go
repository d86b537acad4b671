package adopt

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// Package adopt calls functions of gnet that are not exported. Whoever takes
// another version of gnet has to compare them with what doc.go says of them.
func TestGnetIsTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	const want = gnetPath + " v2.10.0"
	b, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, gnetPath) {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if len(got) != 1 || got[0] != want {
		t.Errorf("go.mod says %q, want %q alone", got, want)
	}
}

// events tells what gnet calls.
type events struct {
	gnet.BuiltinEventEngine
	opened chan gnet.Conn
	closed chan any // the context
}

func (e *events) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	e.opened <- c
	return nil, gnet.None
}

func (e *events) OnTraffic(c gnet.Conn) gnet.Action {
	p, _ := c.Next(-1)
	if string(p) == "panic" {
		return gnet.Close
	}
	_, _ = c.Write([]byte(strings.ToUpper(string(p))))
	return gnet.None
}

func (e *events) OnClose(c gnet.Conn, _ error) gnet.Action {
	e.closed <- c.Context()
	return gnet.None
}

// start starts a gnet client with one event loop and returns it with a connection
// on it.
func start(t *testing.T) (*events, gnet.Conn) {
	t.Helper()
	e := &events{opened: make(chan gnet.Conn, 10), closed: make(chan any, 10)}
	client, err := gnet.NewClient(e, gnet.WithNumEventLoop(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Stop() })
	fds := pair(t)
	f := os.NewFile(uintptr(fds[1]), "")
	nc, err := net.FileConn(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]) })
	gc, err := client.EnrollContext(nc, "enrolled")
	if err != nil {
		t.Fatal(err)
	}
	<-e.opened
	return e, gc
}

func pair(t *testing.T) [2]int {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fds[1], true); err != nil {
		t.Fatal(err)
	}
	return fds
}

type task func()

func (f task) Run(context.Context) error { f(); return nil }

// on runs f on the loop's goroutine.
func on(t *testing.T, el gnet.EventLoop, f func()) {
	t.Helper()
	done := make(chan struct{})
	if err := el.Execute(t.Context(), task(func() { f(); close(done) })); err != nil {
		t.Fatal(err)
	}
	<-done
}

func TestAnAdoptedConnectionIsServedAsAnEnrolledOne(t *testing.T) {
	t.Parallel()
	e, first := start(t)
	loop, err := Of(first)
	if err != nil {
		t.Fatal(err)
	}
	for _, ending := range []string{"by the client", "by the server"} {
		fds := pair(t)
		on(t, first.EventLoop(), func() {
			if err := loop.Adopt(fds[1], ending); err != nil {
				t.Error(err)
			}
			if len(e.opened) != 1 {
				t.Error("OnOpen has not been called when Adopt returned")
			}
		})
		gc := <-e.opened
		if gc.Context() != ending || gc.EventLoop() != first.EventLoop() || gc.Fd() != fds[1] {
			t.Errorf("context %v, loop %v, descriptor %d", gc.Context(), gc.EventLoop(), gc.Fd())
		}
		if gc.LocalAddr() != nil || gc.RemoteAddr() != nil {
			t.Errorf("it has addresses: %v, %v", gc.LocalAddr(), gc.RemoteAddr())
		}
		got := make([]byte, 8)
		if _, err := unix.Write(fds[0], []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if n, err := unix.Read(fds[0], got); string(got[:n]) != "HELLO" {
			t.Errorf("got %q, %v", got[:n], err)
		}
		if ending == "by the server" {
			if _, err := unix.Write(fds[0], []byte("panic")); err != nil {
				t.Fatal(err)
			}
			if n, err := unix.Read(fds[0], got); n != 0 || err != nil {
				t.Errorf("got %q, %v, want the end", got[:n], err)
			}
		}
		if err := unix.Close(fds[0]); err != nil {
			t.Fatal(err)
		}
		if context := <-e.closed; context != ending {
			t.Errorf("%v was closed", context)
		}
	}
}

// A poller takes no descriptor twice, nor one of a file.
func TestADescriptorThatThePollerRefusesIsClosed(t *testing.T) {
	t.Parallel()
	e, first := start(t)
	loop, err := Of(first)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 100)
	if err != nil {
		t.Fatal(err)
	}
	on(t, first.EventLoop(), func() {
		if err := loop.Adopt(fd, nil); !errors.Is(err, unix.EPERM) {
			t.Errorf("got %v", err)
			return
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
			t.Errorf("the descriptor is still open: %v", err)
		}
	})
	if len(e.opened) != 0 {
		t.Error("OnOpen was called")
	}
}

// stranger is a connection of a type that is not gnet's.
type stranger struct{ gnet.Conn }

func (stranger) EventLoop() gnet.EventLoop { return nil }

func TestOtherTypesThanGnetsAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := Of(stranger{}); err == nil {
		t.Error("a stranger was taken for gnet's")
	}
	_, first := start(t)
	if _, err := Of(struct{ gnet.Conn }{first}); err == nil {
		t.Error("a wrapped connection was taken for gnet's")
	}
}
