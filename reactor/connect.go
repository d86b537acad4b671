package reactor

import (
	"context"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// ownListener is the number of the connections that the process has made to itself.
// Nobody listens for them.
const ownListener = firstTLS - 1

// ownAddr is the address of their peer. The console is what connects in this way.
const ownAddr = "console"

// own tells that the process has made the connection to itself.
func (id listenerID) own() bool { return id == ownListener }

// Connect makes a connection to the server from inside its process, and returns the
// client's end of it. A loop serves it as any other client, with the same commands and
// the same turns, but Config.Access is not asked, the client may do everything, it takes
// no slot of Config.MaxConnections, and Config.IdleTimeout does not end it. The address
// of the peer is "console". After an error for want of a descriptor it can be tried again.
//
// Connect works whether or not [Server.Serve] was called. After Shutdown has begun it
// returns [ErrClosed]. If ctx ends first, its error is returned. Any goroutine may call it.
func (s *Server) Connect(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	s.acceptors.Add(1) // the loops do not end before the connection lies on one
	s.mu.Unlock()
	here, there, err := connectedPair()
	if err != nil {
		s.acceptors.Done()
		return nil, fmt.Errorf("reactor: connecting to this server: %w", err)
	}
	l := s.leastLoop(s.loops[0])
	adopted := make(chan error, 1)
	l.call(func(l *loop) {
		defer s.acceptors.Done()
		n := arrival{fd: there, listener: ownListener}
		if l.held {
			l.arrivals.post(n)
			adopted <- nil
			return
		}
		adopted <- l.admit(n)
	})
	select {
	case err = <-adopted:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		_ = here.Close()
		return nil, fmt.Errorf("reactor: connecting to this server: %w", err)
	}
	return here, nil
}

// connectedPair returns a client's end of a connection, and the descriptor of the other
// end, which does not block.
func connectedPair() (here net.Conn, there int, err error) {
	fds, err := socketpair()
	if err != nil {
		return nil, -1, err
	}
	file := os.NewFile(uintptr(fds[0]), ownAddr)
	here, err = net.FileConn(file)
	_ = file.Close() // FileConn has made a copy
	if err != nil {
		_ = unix.Close(fds[1])
		return nil, -1, err
	}
	return here, fds[1], nil
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
