package gnetloop

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/panjf2000/gnet/v2"
)

// Handler is what a loop calls, on its goroutine.
type Handler interface {
	// Round begins a round. woken tells that Wake was called since the one before.
	Round(woken bool)
	// EndRound ends it, when all that was reported was dealt with.
	EndRound()
	// Reported tells of a descriptor that is watched under a number: that it has input, or
	// that it has come to its end, or both. It may be older than Unwatch.
	Reported(number int32, input, ended bool)
	// Writable tells that a descriptor of AwaitOutput can be written to or is broken, or perhaps
	// neither.
	Writable(fd int)
}

// Conn is a connection of a loop, which calls it on its goroutine.
type Conn interface {
	// Received takes what was read. p is valid during the call.
	Received(p []byte)
	// Closing is called before the descriptor is closed: because the peer has sent its last,
	// with an error that is io.EOF; because reading has failed; and with nil after Close, or
	// when the loop is being stopped.
	Closing(err error)
}

const (
	// maxReports is how many descriptors one poll reports at most.
	maxReports = 128

	// yieldInterval is how long a loop runs at most without a call of the runtime's
	// scheduler. After 10 ms the runtime's monitor would interrupt it, and look after it every
	// 20 microseconds from then on, on the loop's own processor.
	yieldInterval = 8 * time.Millisecond
)

// Loop is one of gnet's event loops. Its methods are for its own goroutine, where they do not
// say otherwise.
type Loop struct {
	// These do not change.
	client    interface{ Stop() error } // a gnet.Client
	el        gnet.EventLoop
	ptr       unsafe.Pointer // el, as gnet's functions want it
	poller    poller
	simulated *simulated // in place of these; nil except in a simulation
	fatal     func(why string, attrs ...any)

	waker  waker
	ending atomic.Bool // Run is to return

	handler  Handler
	events   []event
	found    int // how many reports the last poll has found
	yielded  time.Time
	conns    map[int32]gnet.Conn // by descriptor
	adopting Conn                // between Adopt and gnet's OnOpen
	closing  []gnet.Conn         // to be closed at the end of the round
}

// Run has the loop's goroutine serve its connections until Stop. Any goroutine may call it,
// once.
func (l *Loop) Run(h Handler) error {
	l.handler = h
	return l.el.Execute(context.Background(), task(l.run))
}

func (l *Loop) run() {
	l.events = make([]event, maxReports)
	l.waker.awake.Store(true)
	for !l.ending.Load() {
		n, err := l.wait()
		if err != nil {
			l.fatal("an event loop cannot poll", "error", os.NewSyscallError("poll", err))
			return
		}
		woken := l.waker.woken.Load()
		if woken {
			l.waker.woken.Store(false) // before the handler looks at what others have left
		}
		l.handler.Round(woken)
		l.reportAll(n)
		for more := true; more; more = len(l.closing) > 0 {
			for i := 0; i < len(l.closing); i++ { // closing one may end others
				_ = l.el.Close(l.closing[i])
			}
			clear(l.closing)
			l.closing = l.closing[:0]
			l.handler.EndRound()
		}
	}
}

// reportAll deals with what the last poll has found.
func (l *Loop) reportAll(n int) {
	if s := l.simulated; s != nil {
		for i := range s.reports[:n] {
			s.report(&s.reports[i])
		}
		return
	}
	for i := range l.events[:n] {
		l.report(&l.events[i])
	}
}

// wait polls. It sleeps when there is nothing to report and the loop was not woken.
func (l *Loop) wait() (n int, err error) {
	if now := time.Now(); l.simulated == nil && now.Sub(l.yielded) >= yieldInterval {
		l.yielded = now
		runtime.Gosched()
	}
	// While there is much to do, there is more when that is done.
	if l.found > 1 || l.waker.woken.Load() {
		if l.found, err = l.poll(false); l.found > 0 || err != nil {
			return l.found, err
		}
	}
	l.found = 0 // Wake may be called just now, and what was reported is old
	if l.waker.mayRest() {
		l.found, err = l.poll(true)
	}
	l.waker.awake.Store(true)
	return l.found, err
}

func (l *Loop) poll(wait bool) (n int, err error) {
	if l.simulated != nil {
		return l.simulated.poll(wait), nil
	}
	return l.poller.poll(l.events, wait)
}

// Adopt registers the connected stream socket fd, which must be non-blocking, with the loop.
// fd is the loop's from then on: when Adopt fails it is closed.
func (l *Loop) Adopt(fd int, c Conn) error {
	if l.simulated != nil {
		l.simulated.adopt(fd, c)
		return nil
	}
	l.adopting = c
	if err := register0(l.ptr, newStreamConn("tcp", fd, l.ptr, nil, nil, nil)); err != nil {
		return fmt.Errorf("gnetloop: registering a descriptor with an event loop: %w", err)
	}
	return nil
}

// Close has a connection closed at the end of the round, when no report of it is left. One that
// the loop does not have, or is closing already, is left alone.
func (l *Loop) Close(fd int) {
	if gc := l.conns[int32(fd)]; gc != nil {
		l.closing = append(l.closing, gc)
	}
}

// events is what gnet calls, on the loop's goroutine.
type events struct {
	gnet.BuiltinEventEngine
	loop *Loop
}

func (e *events) OnOpen(gc gnet.Conn) ([]byte, gnet.Action) {
	gc.SetContext(e.loop.adopting)
	e.loop.conns[int32(gc.Fd())] = gc
	return nil, gnet.None
}

func (e *events) OnTraffic(gc gnet.Conn) gnet.Action {
	p, _ := gc.Next(-1) // gnet would copy what is left to a buffer, and from then on every read
	gc.Context().(Conn).Received(p)
	return gnet.None
}

// OnClose comes also for connections that the server closes itself.
func (e *events) OnClose(gc gnet.Conn, err error) gnet.Action {
	delete(e.loop.conns, int32(gc.Fd()))
	gc.Context().(Conn).Closing(err)
	return gnet.None
}

// pointer is a connection as gnet's functions want it.
func pointer(gc gnet.Conn) unsafe.Pointer { return reflect.ValueOf(gc).UnsafePointer() }

// waker makes a loop begin a round. A loop that is awake looks for itself before it sleeps, so
// that the system is asked only for one that sleeps.
type waker struct {
	woken atomic.Bool // Wake was called, and no round has begun since
	awake atomic.Bool // the loop looks at woken before it sleeps

	mu   sync.RWMutex
	open bool // the poller's descriptors may be used; guarded by mu
}

// Wake makes the loop begin a round with Round(true), unless it is being stopped. Any
// goroutine may call it; it does not block.
func (l *Loop) Wake() {
	w := &l.waker
	if w.woken.Load() || w.woken.Swap(true) {
		return
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.open && !w.awake.Load() {
		if l.simulated != nil {
			l.simulated.poller.Wake()
		} else if err := l.poller.interrupt(); err != nil {
			// Sessions might sleep for ever.
			l.fatal("an event loop cannot be woken", "error", err)
		}
	}
}

// mayRest says that the loop is about to sleep. It reports false when the loop was woken before.
func (w *waker) mayRest() bool {
	w.awake.Store(false)
	return !w.woken.Load()
}

// close makes Wake do nothing from now on.
func (w *waker) close() {
	w.mu.Lock()
	w.open = false
	w.mu.Unlock()
}
