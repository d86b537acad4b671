//go:build linux && !poll_opt

package reactor

import (
	"iter"
	"os"
	"runtime"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"trellis/engine"
	"trellis/reactor/internal/gnetpoll"
)

// polling lets a loop wait for input by itself, inside a call from gnet that returns when
// gnet has a task for the loop, which is at the server's end. What is reported of a
// client is handed to gnet, which reads it as if it had polled.
//
// gnet polls twice before it sleeps, and between the two yields the processor. Because
// there is a spare one (see cmd/trellisd), the runtime then wakes a second thread, which
// takes over the loop: two wake-ups and two switches of threads for each command of a
// client that sends one at a time.
//
// Whoever polls also knows when a round is over. So rings need no system call while the
// loop is awake (see bell), and connections are closed at the end of a round, when no
// report of them is left.
type polling struct {
	on      bool // the loop polls by itself
	events  []unix.EpollEvent
	found   int         // how many reports the last poll has found
	yielded engine.Time // when the runtime was last given the chance to run others

	conns   map[int32]gnet.Conn // of clients, by descriptor
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
		conns:  make(map[int32]gnet.Conn),
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
	if a, ok := gc.Context().(*acceptor); ok {
		l.polling.gates[int32(gc.Fd())] = a
	} else {
		l.polling.conns[int32(gc.Fd())] = gc
	}
}

// dismissed notes that gnet closes a connection.
func (l *loop) dismissed(gc gnet.Conn) {
	delete(l.polling.conns, int32(gc.Fd()))
	delete(l.polling.gates, int32(gc.Fd()))
}

// enrolledConns are the connections of clients that gnet has.
func (l *loop) enrolledConns() iter.Seq[*conn] {
	return func(yield func(*conn) bool) {
		for _, gc := range l.polling.conns {
			c, ok := gc.Context().(*conn)
			if !ok {
				c = &gc.Context().(*tlsConn).conn
			}
			if !yield(c) {
				return
			}
		}
	}
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
	p.found = 0 // the bell may ring just now, and what was reported is old
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
	if gc := p.conns[ev.Fd]; gc != nil {
		// What goes wrong with a connection ends it, of which OnClose tells.
		_ = l.adopt.Report(gc, ev.Events)
		return
	}
	if a := p.gates[ev.Fd]; a != nil {
		switch {
		case ev.Events&input != 0:
			a.arrived()
		case a.gate.gc != nil: // otherwise it is closed at the end of the round
			_ = l.el.Close(a.gate.gc)
		}
		return
	}
	switch {
	case ev.Fd == gnetpoll.Watched:
		l.engine.Spend(connSteps)
		l.server.handshakes.reported(ev.Pad, ev.Events)
	case int(ev.Fd) == l.bell.heardAt:
		l.bell.clear()
	case l.poller.IsTask(ev.Fd):
		p.on = false
		if err := l.poller.PassTask(); err != nil {
			l.server.die("an event loop cannot be ended", "error", os.NewSyscallError("write", err))
		}
	}
}
