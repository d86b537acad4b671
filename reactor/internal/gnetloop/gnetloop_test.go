package gnetloop

import (
	"errors"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// This package calls functions of gnet that are not exported. Whoever takes another version
// of gnet has to compare them with what doc.go says of them.
func TestGnetIsTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	const gnetPath = "github.com/panjf2000/gnet/v2"
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

// rounds is a Handler that tells what it hears, and runs what it is given in a round for
// which the loop was woken.
type rounds struct {
	calls  chan func()
	number atomic.Int32 // that was reported last
	times  atomic.Int64 // that any was
	end    func()       // is called when a round ends, by the loop; nil for nothing

	writable chan int
}

func (r *rounds) Round(woken bool) {
	if woken {
		for range len(r.calls) { // what comes during a call is for the next round
			(<-r.calls)()
		}
	}
}

func (r *rounds) Reported(number int32, _, _ bool) {
	r.number.Store(number)
	r.times.Add(1)
}

func (r *rounds) EndRound() {
	if r.end != nil {
		r.end()
	}
}

func (r *rounds) Writable(fd int) { r.writable <- fd }

// startLoop starts and runs a loop. call runs a function on its goroutine.
func startLoop(t *testing.T) (l *Loop, r *rounds, call func(func())) {
	t.Helper()
	loops, err := Start(Config{Loops: 1, ReadSize: 4096, Log: slog.New(slog.DiscardHandler), Fatal: func(why string, attrs ...any) { t.Error(why, attrs) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Stop(loops); err != nil {
			t.Error(err)
		}
	})
	r, call = run(t, loops[0])
	return loops[0], r, call
}

// run runs a loop. call runs a function on its goroutine.
func run(t *testing.T, l *Loop) (r *rounds, call func(func())) {
	t.Helper()
	r = &rounds{calls: make(chan func(), 10), writable: make(chan int, 10)}
	if err := l.Run(r); err != nil {
		t.Fatal(err)
	}
	return r, func(f func()) {
		done := make(chan struct{})
		r.calls <- func() { f(); close(done) }
		l.Wake()
		<-done
	}
}

// echo is a Conn that sends what it gets back in capitals.
type echo struct {
	loop   *Loop
	fd     int
	closed chan error
}

func (e *echo) Received(p []byte) {
	if string(p) == "close" {
		e.loop.Close(e.fd)
		return
	}
	_, _ = unix.Write(e.fd, []byte(strings.ToUpper(string(p))))
}

func (e *echo) Closing(err error) { e.closed <- err }

func pair(t *testing.T) [2]int {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fds[1], true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]) })
	return fds
}

// adopt gives one end of a pair to the loop, and returns the other.
func adopt(t *testing.T, l *Loop, call func(func())) (here int, e *echo) {
	t.Helper()
	fds := pair(t)
	e = &echo{loop: l, fd: fds[1], closed: make(chan error, 1)}
	call(func() {
		if err := l.Adopt(fds[1], e); err != nil {
			t.Error(err)
		}
	})
	return fds[0], e
}

// do sends something, and returns what comes back.
func do(t *testing.T, fd int, send string) string {
	t.Helper()
	if _, err := unix.Write(fd, []byte(send)); err != nil {
		t.Fatal(err)
	}
	var got [100]byte
	n, err := unix.Read(fd, got[:])
	if err != nil {
		t.Fatal(err)
	}
	return string(got[:n])
}

func TestAnAdoptedConnectionIsServed(t *testing.T) {
	t.Parallel()
	l, _, call := startLoop(t)
	a, ea := adopt(t, l, call)
	b, eb := adopt(t, l, call)
	for _, fd := range []int{a, b} {
		if got := do(t, fd, "hello"); got != "HELLO" {
			t.Errorf("got %q", got)
		}
	}
	call(func() {
		if n := len(l.conns); n != 2 {
			t.Errorf("there are %d connections", n)
		}
		for _, gc := range l.conns { // each would take memory
			if gc.LocalAddr() != nil || gc.RemoteAddr() != nil {
				t.Errorf("it has addresses: %v, %v", gc.LocalAddr(), gc.RemoteAddr())
			}
		}
	})
	if got := do(t, a, "close"); got != "" {
		t.Errorf("got %q, want the end", got)
	}
	if err := <-ea.closed; err != nil {
		t.Errorf("it was closed with %v", err)
	}
	_ = unix.Shutdown(b, unix.SHUT_WR)
	if err := <-eb.closed; err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("the other was closed with %v", err)
	}
}

// The end of a round comes behind all that the round has closed, and what it closes itself does not wait for the next.
func TestTheEndOfARoundMayCloseConnections(t *testing.T) {
	t.Parallel()
	l, r, call := startLoop(t)
	_, first := adopt(t, l, call)
	_, second := adopt(t, l, call)
	behind := make(chan bool, 1)
	call(func() {
		l.Close(first.fd)
		r.end = func() {
			r.end = nil
			behind <- len(first.closed) == 1
			l.Close(second.fd)
		}
	})
	if !<-behind {
		t.Error("the round ended before what it has closed")
	}
	<-second.closed
}

func TestAConnectionThatIsPausedIsNotRead(t *testing.T) {
	t.Parallel()
	l, _, call := startLoop(t)
	paused, e := adopt(t, l, call)
	other, _ := adopt(t, l, call)
	call(func() {
		if err := l.Pause(e.fd); err != nil {
			t.Error(err)
		}
	})
	if _, err := unix.Write(paused, []byte("a")); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		do(t, other, "b")
	}
	if n, _, err := unix.Recvfrom(paused, make([]byte, 1), unix.MSG_DONTWAIT); err != unix.EAGAIN {
		t.Errorf("%d bytes came: %v", n, err)
	}
	call(func() {
		if err := l.Resume(e.fd); err != nil {
			t.Error(err)
		}
	})
	if got := do(t, paused, ""); got != "A" {
		t.Errorf("got %q", got)
	}
}

func TestAWatchedDescriptorIsReportedByItsNumber(t *testing.T) {
	t.Parallel()
	l, r, call := startLoop(t)
	fds := pair(t)
	defer unix.Close(fds[1])
	call(func() {
		if err := l.Watch(fds[1], -7); err != nil {
			t.Error(err)
		}
	})
	if _, err := unix.Write(fds[0], []byte("a")); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); r.times.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is not reported")
		}
	}
	if n := r.number.Load(); n != -7 {
		t.Errorf("it is number %d", n)
	}
	call(func() {
		if err := l.Unwatch(fds[1]); err != nil {
			t.Error(err)
		}
	})
	call(func() {}) // what was reported by the same poll has come
	times := r.times.Load()
	call(func() {})
	if n := r.times.Load() - times; n > 0 {
		t.Errorf("it was reported %d times after Unwatch", n)
	}
}

func TestADescriptorIsReportedOnceWhenItTakesOutput(t *testing.T) {
	t.Parallel()
	l, r, call := startLoop(t)
	here, e := adopt(t, l, call)
	await := func(again bool) {
		call(func() {
			if err := l.AwaitOutput(e.fd, again); err != nil {
				t.Error(err)
			}
		})
	}
	for again := range 3 {
		await(again > 0)
		if fd := <-r.writable; fd != e.fd {
			t.Errorf("%d takes output, want %d", fd, e.fd)
		}
	}
	for chunk := make([]byte, 1<<20); ; {
		if _, err := unix.Write(e.fd, chunk); err != nil {
			break // it is full
		}
	}
	await(true)
	do(t, here, "a") // takes some of it
	for n := 1; n > 0; {
		n, _, _ = unix.Recvfrom(here, make([]byte, 1<<20), unix.MSG_DONTWAIT)
	}
	<-r.writable
	call(func() { l.ForgetOutput(e.fd) })
	await(false)
	<-r.writable
	call(func() {})
	if n := len(r.writable); n != 0 {
		t.Errorf("there are %d more reports", n)
	}
}

// A poller takes no descriptor of a file.
func TestADescriptorThatThePollerRefusesIsClosed(t *testing.T) {
	t.Parallel()
	l, _, call := startLoop(t)
	f, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 500)
	if err != nil {
		t.Fatal(err)
	}
	call(func() {
		if err := l.Adopt(fd, &echo{}); !errors.Is(err, unix.EPERM) {
			t.Errorf("got %v", err)
			return
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
			t.Errorf("the descriptor is still open: %v", err)
		}
		if len(l.conns) != 0 {
			t.Error("the loop has it")
		}
	})
}

func TestLoopsThatWereNotRunCanBeStopped(t *testing.T) {
	t.Parallel()
	loops, err := Start(Config{Loops: 3, ReadSize: 4096, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := Stop(loops); err != nil {
		t.Error(err)
	}
}

func TestStopEndsWhatConnectionsThereAre(t *testing.T) {
	t.Parallel()
	loops, err := Start(Config{Loops: 1, ReadSize: 4096, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l, r := loops[0], &rounds{calls: make(chan func(), 1)}
	if err := l.Run(r); err != nil {
		t.Fatal(err)
	}
	fds := pair(t)
	e := &echo{loop: l, fd: fds[1], closed: make(chan error, 1)}
	r.calls <- func() { _ = l.Adopt(fds[1], e) }
	l.Wake()
	do(t, fds[0], "a")
	if err := Stop(loops); err != nil {
		t.Error(err)
	}
	select {
	case err := <-e.closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the connection was not closed")
	}
}

// slowConn is a Conn that tells when it closes, and then waits.
type slowConn struct{ closing, goOn chan struct{} }

func (c *slowConn) Received([]byte) {}

func (c *slowConn) Closing(error) {
	close(c.closing)
	<-c.goOn
}

// A loop that takes long to close its connections keeps no other one from ending. Otherwise gnet
// would go on to serve the clients of the others, in rounds that nobody begins.
func TestLoopsEndTogether(t *testing.T) {
	t.Parallel()
	loops, err := Start(Config{Loops: 2, ReadSize: 4096, Log: slog.New(slog.DiscardHandler), Fatal: func(why string, attrs ...any) { t.Error(why, attrs) }})
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*slowConn
	for i, l := range loops {
		_, call := run(t, l)
		fds := pair(t)
		conns[i] = &slowConn{make(chan struct{}), make(chan struct{})}
		call(func() {
			if err := l.Adopt(fds[1], conns[i]); err != nil {
				t.Error(err)
			}
		})
	}
	stopped := make(chan error)
	go func() { stopped <- Stop(loops) }()
	for _, c := range conns {
		select {
		case <-c.closing:
		case <-time.After(time.Minute):
			t.Error("a loop does not end while another one closes its connections")
		}
	}
	for _, c := range conns {
		close(c.goOn)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// Whatever gnet's fields are, they are not taken for what they are not.
func TestFieldsThatAreNotThereAreNotFound(t *testing.T) {
	t.Parallel()
	type poller struct{ fd any }
	type loop struct{ poller *poller }
	_ = poller{}.fd
	for _, names := range [][]string{{"poller", "fd"}, {"poller", "efd"}, {"fd"}, {"poller", "fd", "fd"}} {
		if fd, err := descriptor(reflect.ValueOf(&loop{&poller{}}), names...); err == nil {
			t.Errorf("%v is %d", names, fd)
		}
	}
}
