package accept

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"trellis/reactor/internal/gnetloop"
	"trellis/reactor/throttle"
)

// ErrClosed is what Serve and Connect return after Stop.
var ErrClosed = errors.New("reactor: the server is shut down")

// Loop is an event loop of the server.
type Loop interface {
	// Poller watches descriptors for the acceptor. What it reports of them goes to Acceptor.Reported, on the
	// loop's goroutine.
	Poller() *gnetloop.Loop
	// Call calls f soon, on the loop's goroutine. Any goroutine may call it until Acceptor.Wait has returned.
	Call(f func())
	// Least returns the loop that is to have the next connection, this one if it is as good as any, and counts a
	// connection for it. Any goroutine may call it.
	Least() Loop
	// Admit takes in a connection, now, or later if the loop takes in none at present. Its error is that of
	// Acceptor.Failed. It is called on the loop's goroutine.
	Admit(n Arrival) error
	// Post has the loop take in a connection soon. If that fails, the loop reports it to Acceptor.Failed. Any
	// goroutine may call it.
	Post(n Arrival)
	// MakeRoom frees a place by disconnecting a client that nobody knows yet. It reports false if the loop has
	// none; then other loops make room for whoever comes next. It is called on the loop's goroutine.
	MakeRoom() bool
}

// Config is what an Acceptor needs.
type Config struct {
	Loops          []Loop
	MaxConnections int            // how many places there are
	KeepAlive      time.Duration  // after how long a silence over TCP the other end is asked; 0: the listener's timings
	ProxyFrom      []netip.Prefix // the addresses of proxies that may connect to a Proxied listener
	Handshake      time.Duration  // how long a handshake may take; 0 means 10 s
	Alert          time.Duration  // how long a client may read why its handshake has failed; 0 means 1 s
	Simulated      bool           // sockets are a simulation's, which has always descriptors left
	Log            *slog.Logger
}

// hooks let tests see and provoke what does not happen otherwise.
type hooks struct {
	accept    func() error  // before a connection is accepted: its error is that of accepting; nil for nothing
	pause     time.Duration // instead of minPause
	unwatched bool          // handshakes wait in a goroutine for their clients to begin
}

// Acceptor accepts on the listeners of a server. Any goroutine may call its methods where they do not say otherwise.
type Acceptor struct {
	cfg   Config
	log   *slog.Logger
	hooks hooks
	taken atomic.Int64 // places
	spare spare        // for connections that go on under another descriptor

	done  chan struct{}  // closed when no more is accepted
	calls sync.WaitGroup // of Serve and Connect; Add only with mu held and closed false
	freed chan struct{}  // tells a paused listener that a descriptor was closed

	mu        sync.Mutex
	closed    bool                   // Stop was called; guarded by mu
	aborted   bool                   // Abort was called; guarded by mu
	served    int                    // listeners that are or were served; guarded by mu
	listening map[*listener]struct{} // those whose descriptors are open; guarded by mu
	listeners listenerTable

	watched    sync.Map // of *listener, by the number under which its loop watches it
	handshakes handshakes
	counts     counts

	refusals, strangers throttle.Throttle
}

// New returns an acceptor. It holds one descriptor until Close.
func New(cfg Config) *Acceptor { return newAcceptor(cfg, hooks{}) }

func newAcceptor(cfg Config, h hooks) *Acceptor {
	cfg.Handshake = cmp.Or(cfg.Handshake, handshakeTime)
	cfg.Alert = cmp.Or(cfg.Alert, alertTime)
	h.pause = cmp.Or(h.pause, minPause)
	a := &Acceptor{
		cfg:       cfg,
		log:       cfg.Log,
		hooks:     h,
		done:      make(chan struct{}),
		freed:     make(chan struct{}, 1),
		listening: make(map[*listener]struct{}),
	}
	a.handshakes.init(cfg.MaxConnections)
	if !cfg.Simulated {
		a.spare.hold() // tried again whenever it is needed
	}
	return a
}

// Serve accepts connections on l until Stop or Unserve, and then closes l and returns nil. l is a TCP or Unix stream
// listener that the system knows by a descriptor, or a [Proxied] one. Its socket may go on under another descriptor,
// and nobody else may accept on it or close it. config is nil for clients that do not speak TLS. When descriptors or
// memory run out, Serve waits for better times; any other failure to accept ends it with an error. After Stop it
// returns ErrClosed.
func (a *Acceptor) Serve(l net.Listener, config *tls.Config) error {
	p, proxied := l.(Proxied)
	if proxied {
		l = p.Listener
	}
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		_ = l.Close()
		return ErrClosed
	}
	on := a.cfg.Loops[a.served%len(a.cfg.Loops)]
	a.served++
	number := -int32(a.served)
	id := a.listeners.add(l.Addr(), config != nil)
	a.calls.Add(1)
	a.mu.Unlock()
	defer a.calls.Done()
	defer l.Close()
	s := &listener{
		acceptor: a, socket: l, loop: on, id: id, number: number, tls: config, proxied: proxied,
		shortages: make(chan error, 1), ended: make(chan struct{}), attempts: 1,
	}
	s.end = sync.OnceFunc(func() { close(s.ended) })
	if proxied {
		s.header = make([]byte, maxProxyHeader)
	}
	defer s.close()
	if err := s.prepare(); err != nil {
		return fmt.Errorf("reactor: preparing to accept on %s: %w", l.Addr(), err)
	}
	a.mu.Lock()
	aborted := a.aborted
	if !aborted {
		a.listening[s] = struct{}{}
	}
	a.mu.Unlock()
	if aborted {
		return nil // Abort has not seen this listener, and run might wait for a loop that hangs
	}
	return s.run()
}

// Unserve ends all calls of Serve that are under way: clients cannot connect any more. Those who are connected stay,
// and other listeners may follow. It does not wait.
func (a *Acceptor) Unserve() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for l := range a.listening {
		l.end()
	}
}

// Stop makes Serve and Connect return. It does not wait.
func (a *Acceptor) Stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.closed = true
		close(a.done)
	}
}

// Wait waits, after Stop, until nothing arrives any more: all calls of Serve and Connect have returned, and the
// handshakes that were under way are given up. It comes before the loops end.
func (a *Acceptor) Wait() {
	a.calls.Wait()
	a.handshakes.stop()
}

// Abort is Stop, has the system refuse clients, even if the loop that accepts them hangs, and gives up all handshakes.
// It does not wait for their ends. On BSD, a listener whose loop hangs cannot be shut down.
func (a *Acceptor) Abort() {
	a.Stop()
	a.disconnect()
	a.handshakes.giveUpAll()
}

// Close frees what the acceptor has, when its loops have ended.
func (a *Acceptor) Close() { a.spare.release() }

// Reported takes a poller's report of what it watches for the acceptor: input, or the end, or both. It is called on the
// goroutine of the poller's loop. Numbers of listeners are negative, those of handshakes are not.
func (a *Acceptor) Reported(number int32, input, ended bool) {
	if number >= 0 {
		a.handshakes.reported(number, ended)
	} else if l, ok := a.watched.Load(number); ok { // otherwise it is watched no longer
		l.(*listener).reported(input)
	}
}

// Freed reports that the server is closing a descriptor, which a paused listener may use.
func (a *Acceptor) Freed() {
	if a.counts.paused.Load() > 0 {
		select {
		case a.freed <- struct{}{}:
		default:
		}
	}
}

// Duplicate returns a copy of a descriptor that no other program inherits and that is none of the standard streams. If
// there is none left otherwise, it is the one that the acceptor holds in reserve.
func (a *Acceptor) Duplicate(fd int) (int, error) { return a.spare.duplicate(fd) }

// TakePlace takes a place for a connection that is to come. It reports false if all are taken. Closed frees it.
func (a *Acceptor) TakePlace() bool {
	if a.taken.Add(1) > int64(a.cfg.MaxConnections) {
		a.taken.Add(-1)
		return false
	}
	return true
}
