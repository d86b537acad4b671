package accept

import (
	"context"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Connect makes a connection to the server from inside its process, and returns the client's end of it. A loop gets
// the other end as an Arrival from the listener Own. After an error for want of a descriptor it can be tried again. If
// ctx ends first, its error is returned, and after Stop ErrClosed.
func (a *Acceptor) Connect(ctx context.Context) (net.Conn, error) {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return nil, ErrClosed
	}
	a.calls.Add(1) // the loops do not end before the connection lies on one
	a.mu.Unlock()
	here, there, err := connectedPair()
	if err != nil {
		a.calls.Done()
		return nil, fmt.Errorf("reactor: connecting to this server: %w", err)
	}
	to := a.cfg.Loops[0].Least()
	admitted := make(chan error, 1)
	to.Call(func() {
		defer a.calls.Done()
		n := Arrival{FD: there, Listener: Own}
		err := to.Admit(n)
		if err != nil {
			_ = a.failed(n, err)
		}
		admitted <- err
	})
	select {
	case err = <-admitted:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		_ = here.Close()
		return nil, fmt.Errorf("reactor: connecting to this server: %w", err)
	}
	return here, nil
}

// connectedPair returns a client's end of a connection, and the descriptor of the other end, which does not block.
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
