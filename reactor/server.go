package reactor

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/gnetloop"
	"trellis/reactor/internal/sockets"
	"trellis/reactor/throttle"
)

// ErrClosed is what [Server.Serve], [Server.ServeTLS] and [Server.Connect] return once
// the server is being shut down.
var ErrClosed = accept.ErrClosed

// Config is what a server needs.
type Config struct {
	// Engine answers the commands. It must outlive the server, or its Detach. A server without one
	// forwards its clients: see Server.Forward.
	Engine *engine.Engine
	// Now is the engine's clock, and that of the server, also when it has another engine, or none. It
	// must run at the speed of the monotonic clock and be callable from any goroutine.
	Now func() engine.Time
	// Journal is where the engine records changes; nil for nowhere. Whoever commits it
	// must call Server.Committed afterwards, or Server.CommitFailed if it has failed for good.
	Journal Committer
	// MaxJobSize is the largest body in bytes that a put may announce.
	MaxJobSize uint32
	// Extensions says that clients may use commands that beanstalkd does not have.
	Extensions bool
	// Loops is the number of event loops, at most MaxLoops; 0 means DefaultLoops().
	Loops int
	// MaxConnections is how many connections there may be at a time. One more is
	// answered OUT_OF_MEMORY, the protocol's word for "try again later", and
	// closed. 0 means DefaultMaxConnections().
	MaxConnections int
	// KeepAlive is how long nothing may come over a TCP connection, or a trunk, before the system asks the other end
	// whether it is there, three times within half of that again. If nothing answers, the connection ends. So it does
	// when what was sent is not acknowledged for one and a half times KeepAlive, or, on Linux, not taken. More than 9
	// hours are 9 hours; 0 leaves the timings of the listener's socket.
	KeepAlive time.Duration
	// IdleTimeout is how long a client may neither send nor take anything before
	// its connection is closed, unless it then waits for a job or has reserved one.
	// A command or body of which a part is missing does not keep a connection
	// open. 0 means for ever.
	IdleTimeout time.Duration
	// BodyTimeout is how long nothing of a body may come that a client has announced and
	// for which the server waits, before the connection is closed, whatever the client has
	// reserved. 0 means for ever.
	BodyTimeout time.Duration
	// MaxConnectionAge is how old a connection may become, 0 for any age. Up to a tenth less,
	// so that not all go at once, the connection ends as soon as nothing of a command has come,
	// all replies were taken, and the client has no job reserved; a reserve that waits ends too.
	MaxConnectionAge time.Duration
	// Grace is how long a connection may go on whose client's certificate is not accepted any
	// more: see Server.Reverify.
	Grace time.Duration
	// MaxOutput is how many bytes of replies may be pending for one client before
	// its connection is closed. Replies that are not taken stop the execution of
	// commands long before; what exceeds this is a single huge reply. 0 means
	// DefaultMaxOutput, or two of the largest bodies if that is more.
	MaxOutput int64
	// ProxyFrom are the addresses of the proxies that may connect to a [Proxied] listener.
	ProxyFrom []netip.Prefix
	// MaxOutputTotal is how many bytes of replies may be pending for all clients together. Past
	// it, the one that is owed most of those that do not read is closed; nobody else waits. 0 means
	// no limit.
	MaxOutputTotal int64
	// GatewayMemory is how many bytes of replies may be pending for the clients that a server without an engine forwards,
	// and may be kept of what they have sent and is not answered, and how many bytes of input of gateways' clients may
	// wait at one with an engine, beside 16 KiB of each kind for each. A client that keeps up may have up to 256 KiB, or
	// 128 KiB of input, as long as there is room. 0 means DefaultGatewayMemory.
	GatewayMemory int64
	// Access decides who may do what. Nil lets everybody do everything.
	Access Access
	// Audit is told, by a server without an engine, of commands that were denied to its clients, as
	// engine.Config.Audit is. Nil does nothing.
	Audit func(engine.Deed)
	// Log gets what an operator should know; nil means slog.Default().
	Log *slog.Logger
	// BootTime is a clock that goes on while the machine sleeps: that of contact with the leader. Nil means the system's.
	BootTime func() time.Duration
	// Poller makes what a loop polls in a simulation: see Simulate. Nil means the system's poller.
	Poller func() Poller
}

// Poller is what an event loop of a simulation polls, and Report what it tells.
type (
	Poller = gnetloop.Poller
	Report = gnetloop.Report
)

// Sockets are those of a simulation.
type Sockets = sockets.Simulation

// FirstSocket is the descriptor that a simulation's first socket has.
const FirstSocket = sockets.First

// Simulate has the servers of this process use a simulation's sockets beside those of the system, on Linux. It is
// called at most once, before there is any.
func Simulate(s Sockets) { sockets.Simulate(s) }

// Server serves connections. Make one with [New], and end it with Shutdown or Abort:
// it keeps goroutines and descriptors until then. All methods may be called from any
// goroutine; those that wait for the loops, not from a loop's own.
type Server struct {
	cfg      Config
	log      *slog.Logger
	hooks    hooks
	acceptor *accept.Acceptor

	gnet  []*gnetloop.Loop
	loops []*loop // one for each of gnet; does not change after New

	engine    atomic.Pointer[engine.Engine] // nil while there is none
	held      atomic.Bool                   // by Hold
	heldSince atomic.Int64                  // when it was held last, by the clock of contact
	aborting  atomic.Bool                   // nothing is executed or sent any more
	aborted   chan struct{}                 // closed when aborting begins
	abort     sync.Once
	holds     sync.WaitGroup // calls of Hold, Flush and Revoke; Add only with mu held and closing false
	done      chan struct{}  // closed when shutting down begins
	shutdown  sync.Once
	stopped   chan struct{}  // closed when it is complete
	dialers   sync.WaitGroup // goroutines of Forward

	mu      sync.Mutex
	closing bool // guarded by mu

	forwarding forwarding
	dials      context.CancelFunc // ends what Forward has begun, nil for nothing; guarded by mu
	term       atomic.Uint64      // the latest that is known of leaders to whom clients are forwarded
	applied    atomic.Uint64      // see Applied

	// Bytes by which windows of forwarded clients were raised, and that are kept for them beyond what is free.
	gatewayMemory atomic.Int64

	trunks    atomic.Uint32   // that were accepted; each comes to the next loop
	channels  atomic.Int64    // clients of gateways
	unflushed atomic.Int64    // connections that are owed something: see conn.setUnflushed
	flushed   chan struct{}   // tells Shutdown that unflushed may be zero
	giveUp    <-chan struct{} // closed when Shutdown waits for nothing any more; set before the loops stop

	panics, cuts, closes, idles, tokens throttle.Throttle
	unverified, trunkEnds               throttle.Throttle
}

// hooks let tests see and provoke what does not happen otherwise. Those that
// are nil do nothing.
type hooks struct {
	fatal     func()                            // instead of ending the process
	command   func(c *conn, cmd *codec.Command) // before a command is executed
	round     func(*loop)                       // at the end of a round
	busy      func() bool                       // tells that the engine was interrupted
	unpaused  bool                              // reading cannot be paused
	drain     time.Duration                     // instead of drainTimeout
	linger    time.Duration                     // instead of lingerTime
	handshake time.Duration                     // instead of the acceptor's default
	alert     time.Duration                     // instead of the acceptor's default
	retire    time.Duration                     // instead of retirePause
	loop      func() error                      // before a loop is made: its error is that of making it
	finish    time.Duration                     // instead of finishTime
	copied    int64                             // instead of maxCopied
	recorded  int64                             // instead of maxRecorded
	boot      func() time.Duration              // instead of Config.BootTime
	trunks    uint16                            // instead of trunk.Version
}

// Loops is how many event loops the server has.
func (s *Server) Loops() int { return len(s.loops) }

// now is the process's clock, by which loops have their own deadlines.
func (s *Server) now() time.Duration { return time.Duration(s.cfg.Now()) }

// onLoops runs f on each loop's goroutine and returns when all have. The caller keeps the
// loops from being ended meanwhile: it would wait for ever.
func (s *Server) onLoops(f func(*loop)) {
	var ran sync.WaitGroup
	for _, l := range s.loops {
		ran.Add(1)
		l.call(func(l *loop) {
			defer ran.Done()
			f(l)
		})
	}
	ran.Wait()
}

// die ends the process because its state may be broken.
func (s *Server) die(why string, attrs ...any) {
	s.log.Error("fatal: "+why+"; the process ends, because going on might lose or corrupt jobs", attrs...)
	if s.hooks.fatal != nil {
		s.hooks.fatal()
		return
	}
	os.Exit(2)
}

var errAborted = errors.New("reactor: the server was aborted")

// beginHold keeps the loops from being stopped until holds.Done, unless the server is
// being shut down.
func (s *Server) beginHold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.holds.Add(1)
	}
	return !s.closing
}

// takeMemory counts n bytes more in Config.GatewayMemory, if there is room.
func (s *Server) takeMemory(n int) bool {
	if s.gatewayMemory.Add(int64(n)) > s.cfg.GatewayMemory {
		s.gatewayMemory.Add(-int64(n))
		return false
	}
	return true
}
