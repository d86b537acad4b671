package gnetloop

import (
	"context"
	"io"
	"slices"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"trellis/reactor/internal/sockets"
)

// Poller is what a loop of a simulation polls: sockets of package sockets. The simulation's clock goes on while
// everybody sleeps.
type Poller interface {
	// Watch has a socket reported under a number, which is 0 for connections: while it has input, or its end, or while
	// it has come to its end. It replaces what was asked for before. With neither, it is not reported any more.
	Watch(fd int, number int32, input, end bool)
	// AwaitOutput has a socket that is watched reported once, by itself, when it takes output.
	AwaitOutput(fd int)
	// Poll fills reports with what there is to report, and returns how many there are. The loop calls it.
	Poll(reports []Report) int
	// Sleep returns behind a call of Wake that no Sleep has returned behind, or when there may be something to report.
	// The loop calls it.
	Sleep()
	// Wake does not block. Any goroutine may call it.
	Wake()
}

// Report tells what there is to be done with a socket.
type Report struct {
	FD                 int
	Number             int32
	Input, End, Output bool
}

// simulated is what a loop of a simulation has in place of gnet. The methods that are gnet's and are not here are not
// called.
type simulated struct {
	gnet.EventLoop
	poller  Poller
	loop    *Loop
	reports []Report
	room    []byte        // for what is read
	ended   chan struct{} // closed when the loop has ended; nil before it runs
}

// member is a connection of a simulation's loop.
type member struct {
	gnet.Conn
	fd int
	to Conn
}

func (m *member) Fd() int { return m.fd }

// simulate makes a loop that of a simulation.
func simulate(cfg *Config) *Loop {
	l := &Loop{fatal: cfg.Fatal, conns: make(map[int32]gnet.Conn)}
	l.simulated = &simulated{
		poller: cfg.Poller(), loop: l, reports: make([]Report, maxReports), room: make([]byte, cfg.ReadSize),
	}
	l.client, l.el = l.simulated, l.simulated
	l.waker.open = true
	return l
}

// Execute implements gnet.EventLoop.
func (s *simulated) Execute(ctx context.Context, r gnet.Runnable) error {
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		_ = r.Run(ctx) // the loop's task, which says that it ends
		var fds []int32
		for fd := range s.loop.conns {
			fds = append(fds, fd)
		}
		slices.Sort(fds)
		for _, fd := range fds {
			_ = s.Close(s.loop.conns[fd])
		}
	}()
	return nil
}

// Stop is that of a gnet.Client.
func (s *simulated) Stop() error {
	if s.ended != nil {
		<-s.ended
	}
	return nil
}

// Close implements gnet.EventLoop.
func (s *simulated) Close(gc gnet.Conn) error {
	s.end(gc.(*member), nil)
	return nil
}

func (s *simulated) adopt(fd int, c Conn) {
	s.loop.conns[int32(fd)] = &member{fd: fd, to: c}
	s.poller.Watch(fd, 0, true, false)
}

// poll is that of the system's poller.
func (s *simulated) poll(wait bool) (n int) {
	if wait {
		s.poller.Sleep()
	}
	return s.poller.Poll(s.reports)
}

// report deals with a report as gnet does.
func (s *simulated) report(r *Report) {
	switch {
	case r.Output:
		s.loop.handler.Writable(r.FD)
	case r.Number != 0:
		s.loop.handler.Reported(r.Number, r.Input, r.End)
	default:
		if m, ok := s.loop.conns[int32(r.FD)].(*member); ok && r.Input {
			s.read(m)
		} else if ok {
			s.end(m, io.EOF)
		}
	}
}

// read reads a connection once.
func (s *simulated) read(m *member) {
	switch n, err := sockets.Of(m.fd).Read(m.fd, s.room); {
	case n > 0:
		m.to.Received(s.room[:n])
	case err == nil:
		s.end(m, io.EOF)
	case err != unix.EAGAIN:
		s.end(m, err)
	}
}

// end closes a connection.
func (s *simulated) end(m *member, err error) {
	if s.loop.conns[int32(m.fd)] != gnet.Conn(m) {
		return
	}
	delete(s.loop.conns, int32(m.fd))
	m.to.Closing(err)
	s.poller.Watch(m.fd, 0, false, false)
	sockets.Close(m.fd)
}
