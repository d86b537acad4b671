//go:build linux && !poll_opt

package reactor

import (
	"io"
	"os"
	"runtime"
	"time"
	"unsafe"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"trellis/engine"
)

// polling lets a loop poll by itself, inside a call from gnet that returns when gnet
// has a task for the loop, which is at the server's end.
//
// gnet polls twice before it sleeps, and between the two yields the processor. Because
// there is a spare one (see cmd/trellisd), the runtime then wakes a second thread, which
// takes over the loop: two wake-ups and two switches of threads for each command of a
// client that sends one at a time. gnet also tells the runtime of every read and every
// poll, even of those that cannot block.
//
// Whoever polls also knows when a round is over. So rings need no system call while the
// loop is awake (see bell), and connections are closed at the end of a round, when no
// report of them is left.
type polling struct {
	on      bool // the loop polls by itself
	events  []unix.EpollEvent
	found   int // how many reports the last poll has found
	input   []byte
	yielded engine.Time // when the runtime was last given the chance to run others

	conns   map[int32]*conn     // gnet's connections, by descriptor
	gates   map[int32]*acceptor // by the number with which the listener is reported
	closing []gnet.Conn         // to be closed at the end of the round
}

const (
	// maxReports is how many connections are reported by one poll at most.
	maxReports = 128

	// yieldInterval is how long a loop runs at most without a call of the runtime's
	// scheduler. After 10 ms the runtime's monitor would interrupt it, and look after
	// it every 20 microseconds from then on, on the loop's own processor.
	yieldInterval = 8 * engine.Time(time.Millisecond)
)

// prepareToPoll makes what the loop needs to poll by itself.
func (l *loop) prepareToPoll() {
	if !l.poller.CanWait() {
		return
	}
	l.polling = polling{
		events: make([]unix.EpollEvent, maxReports),
		input:  make([]byte, readSize),
		conns:  make(map[int32]*conn),
		gates:  make(map[int32]*acceptor),
	}
}

// canPoll tells whether the loop polls by itself as soon as its bell rings.
func (l *loop) canPoll() bool { return l.polling.events != nil }

// poll serves the loop until gnet has a task for it.
func (l *loop) poll() {
	p := &l.polling
	p.on = true
	l.bell.wake()
	for p.on {
		n, err := l.wait()
		if err != nil {
			l.server.die("an event loop cannot poll", "error", os.NewSyscallError("epoll_pwait", err))
			break
		}
		l.newRound()
		if l.bell.rung.Load() {
			l.bell.heard()
			l.answerBell()
		}
		for i := range p.events[:n] {
			l.report(&p.events[i])
		}
		for i := 0; i < len(p.closing); i++ { // closing one may end others
			_ = l.el.Close(p.closing[i])
		}
		clear(p.closing)
		p.closing = p.closing[:0]
	}
	l.polling = polling{}
	if !l.bell.sleep() {
		l.bell.write()
	}
}

// enrolled notes that gnet has a connection.
func (l *loop) enrolled(gc gnet.Conn) {
	if !l.canPoll() {
		return
	}
	switch c := gc.Context().(type) {
	case *conn:
		l.polling.conns[int32(gc.Fd())] = c
	case *acceptor:
		l.polling.gates[int32(gc.Fd())] = c
	}
}

// dismissed notes that gnet closes a connection.
func (l *loop) dismissed(gc gnet.Conn) {
	delete(l.polling.conns, int32(gc.Fd()))
	delete(l.polling.gates, int32(gc.Fd()))
}

// closeSoon closes one of gnet's connections, when there is no report of it left.
func (l *loop) closeSoon(gc gnet.Conn) {
	if l.polling.on {
		l.polling.closing = append(l.polling.closing, gc)
		return
	}
	_ = gc.Close()
}

// wait polls. It sleeps when there is nothing to report and the bell has not been rung.
func (l *loop) wait() (n int, err error) {
	p := &l.polling
	if now := l.server.cfg.Now(); now-p.yielded >= yieldInterval {
		p.yielded = now
		runtime.Gosched()
	}
	// While there is much to do, there is more when that is done.
	if p.found > 1 || l.bell.rung.Load() {
		p.found, err = l.poller.Look(p.events)
		if p.found > 0 || err != nil {
			return p.found, err
		}
	}
	if l.bell.sleep() {
		p.found, err = l.poller.Sleep(p.events)
	}
	l.bell.wake()
	return p.found, err
}

// report deals with what the poller has reported of a descriptor.
func (l *loop) report(ev *unix.EpollEvent) {
	const input = unix.EPOLLIN | unix.EPOLLPRI
	p := &l.polling
	if c := p.conns[ev.Fd]; c != nil {
		if ev.Events&input != 0 {
			c.read()
		} else {
			c.inputEnded(io.EOF)
		}
		return
	}
	if a := p.gates[ev.Fd]; a != nil {
		if ev.Events&input != 0 {
			a.arrived()
		} else {
			_ = l.el.Close(a.gate.gc)
		}
		return
	}
	switch {
	case int(ev.Fd) == l.bell.heardAt:
		l.bell.clear()
	case l.poller.IsTask(ev.Fd):
		p.on = false
		if err := l.poller.PassTask(); err != nil {
			l.server.die("an event loop cannot be ended", "error", os.NewSyscallError("write", err))
		}
	}
}

// read takes what the client has sent, as gnet does it.
func (c *conn) read() {
	l := c.loop
	n, err := readShort(int(c.fd), l.polling.input)
	switch {
	case n > 0:
		gc := c.gc
		if c.arrived(l.polling.input[:n]) == gnet.Close {
			_ = l.el.Close(gc)
		}
	case err == nil:
		c.inputEnded(io.EOF)
	case err != unix.EAGAIN && err != unix.EINTR:
		c.inputEnded(os.NewSyscallError("read", err))
	}
}

// inputEnded closes gnet's connection, as gnet does it at the end of the input. When gnet
// is told to close one, it does not say why to OnClose.
func (c *conn) inputEnded(err error) {
	gc := c.gc
	c.gc = nil
	c.closing(c.loop.server.cfg.Now(), err)
	_ = c.loop.el.Close(gc)
}

// readShort reads what a socket has. p is short enough for the runtime not to be told of
// it: see shortWrite.
func readShort(fd int, p []byte) (n int, err error) {
	r, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}
