package reactor

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"trellis/reactor/internal/adopt"
)

// scout is the context of a connection that shows whether a loop adopts
// descriptors.
type scout struct {
	opened bool          // of the loop's goroutine
	closed chan struct{} // closed when gnet has closed the connection
}

// findLoops learns gnet's n event loops, and gives each a bell. gnet shows a loop
// only through a connection on it and gives a new connection to the loop that has
// fewest, so that n connections made in turn lie on n loops.
func (s *Server) findLoops(n int) error {
	for i := range n {
		b, gc, err := s.hangBell()
		if err != nil {
			return err
		}
		el := gc.EventLoop()
		if s.byEL[el] != nil {
			_ = unix.Close(b.fd)
			return fmt.Errorf("loop %d of %d cannot be reached: gnet has not spread %d connections evenly", i, n, n)
		}
		l := newLoop(s, el, b)
		if err := l.tryAdopting(gc); err != nil {
			_ = unix.Close(b.fd)
			return err
		}
		l.pause = newPauser(el, gc.Fd())
		if s.hooks.unpaused {
			l.pause = pauser{}
		}
		if i == 0 && !l.pause.works {
			s.log.Warn("reading from a client cannot be paused here; clients that send too far ahead are closed", "limit", inputCap)
		}
		s.loops = append(s.loops, l)
		s.byEL[el] = l
	}
	return nil
}

// hangBell makes a connection for a bell, on one of the loops.
func (s *Server) hangBell() (b *bell, gc gnet.Conn, err error) {
	fds, err := socketpair()
	if err != nil {
		return nil, nil, err
	}
	there := os.NewFile(uintptr(fds[1]), "bell")
	nc, err := net.FileConn(there)
	_ = there.Close()
	if err == nil {
		b = &bell{fd: fds[0]}
		gc, err = s.client.EnrollContext(nc, b)
	}
	if err == nil {
		err = unix.SetNonblock(b.fd, true)
	}
	if err != nil {
		_ = unix.Close(fds[0])
		return nil, nil, err
	}
	return b, gc, nil
}

// tryAdopting finds out whether the loop adopts descriptors. gc lies on it.
func (l *loop) tryAdopting(gc gnet.Conn) (err error) {
	if l.adopt, err = adopt.Of(gc); err != nil {
		return err
	}
	fds, err := socketpair()
	if err != nil {
		return err
	}
	sc := &scout{closed: make(chan struct{})}
	done := make(chan struct{})
	l.call(func(l *loop) {
		defer close(done)
		if err = l.adopt.Adopt(fds[1], sc); err == nil && !sc.opened {
			err = errors.New("gnet has not opened a connection that it has adopted")
		}
	})
	<-done
	_ = unix.Close(fds[0])
	if err == nil {
		<-sc.closed
	}
	return err
}

// socketpair returns two connected sockets; the second does not block.
func socketpair() (fds [2]int, err error) {
	if fds, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); err != nil {
		return fds, os.NewSyscallError("socketpair", err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	return fds, os.NewSyscallError("setnonblock", unix.SetNonblock(fds[1], true))
}
