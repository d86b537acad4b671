package reactor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"trellis/reactor/internal/adopt"
	"trellis/reactor/internal/gnetpoll"
)

// scout is the context of a connection that only shows where it has got to.
type scout struct{ closed chan struct{} }

// findLoops learns gnet's n event loops. gnet shows a loop only through a
// connection on it and gives a new connection to the loop that has fewest, so
// that n connections made in turn lie on n loops.
func (s *Server) findLoops(n int) error {
	for i := range n {
		here, sc, gc, err := s.sendScout()
		if err != nil {
			return err
		}
		// Closing our end ends the connection; Shutdown or the next start need
		// not know about it.
		defer func() {
			_ = unix.Close(here)
			<-sc.closed
		}()
		el := gc.EventLoop()
		if s.byEL[el] != nil {
			return fmt.Errorf("loop %d of %d cannot be reached: gnet has not spread %d connections evenly", i, n, n)
		}
		l, err := newLoop(s, el)
		if err != nil {
			return err
		}
		s.loops = append(s.loops, l)
		s.byEL[el] = l
		if err := l.hangBell(gc); err != nil {
			return err
		}
		l.poller = gnetpoll.Of(el, gc.Fd())
		if s.hooks.unpaused {
			l.poller = gnetpoll.Poller{}
		}
		if i == 0 && !l.poller.Works() {
			s.log.Warn("reading from a client cannot be paused here; clients that send too far ahead are closed", "limit", inputCap)
		}
	}
	// The engine never forgets a loop, and leaves deadlines to it. So it hears of them now, when
	// the server can no longer fail to start.
	for _, l := range s.loops {
		if err := l.runTask(l.enterEngine); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) sendScout() (here int, sc *scout, gc gnet.Conn, err error) {
	fds, err := socketpair()
	if err != nil {
		return 0, nil, nil, err
	}
	there := os.NewFile(uintptr(fds[1]), "scout")
	nc, err := net.FileConn(there)
	_ = there.Close()
	if err == nil {
		sc = &scout{closed: make(chan struct{})}
		gc, err = s.client.EnrollContext(nc, sc)
	}
	if err != nil {
		_ = unix.Close(fds[0])
		return 0, nil, nil, err
	}
	return fds[0], sc, gc, nil
}

// hangBell gives the loop's bell to gnet. gc lies on the loop. It fails if descriptors
// cannot be given to gnet.
func (l *loop) hangBell(gc gnet.Conn) (err error) {
	if l.adopt, err = adopt.Of(gc); err != nil {
		return err
	}
	b := l.bell
	if unheard := l.runTask(func() {
		if err = l.adopt.Adopt(b.heardAt, b); err == nil && !b.opened {
			err = errors.New("gnet has not opened a connection that it has adopted")
		}
	}); unheard != nil {
		return unheard
	}
	return err
}

// runTask runs f on the loop's goroutine, also while gnet does not have the bell yet.
func (l *loop) runTask(f func()) error {
	done := make(chan struct{})
	err := l.el.Execute(context.Background(), task(func() {
		defer close(done)
		f()
	}))
	if err == nil {
		<-done
	}
	return err
}

// task is a gnet.Runnable.
type task func()

func (f task) Run(context.Context) error { f(); return nil }

// socketpair returns two connected sockets; the second does not block.
func socketpair() (fds [2]int, err error) {
	if fds, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); err != nil {
		return fds, os.NewSyscallError("socketpair", err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	return fds, os.NewSyscallError("setnonblock", unix.SetNonblock(fds[1], true))
}
