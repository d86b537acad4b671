package reactor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/gnetloop"
	"trellis/reactor/internal/stream"
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
}

// MaxLoops is how many loops a server can have, because of gnet.
const MaxLoops = 255

// DefaultLoops is the number of event loops where Config.Loops is 0: one for each
// processor that the process may use, because a loop is busy with system calls most
// of its time, but at most 8, because the loops share the engine's shards.
func DefaultLoops() int { return min(runtime.GOMAXPROCS(0), 8) }

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
	boot      func() time.Duration              // the clock of contact, instead of bootTime
	trunks    uint16                            // instead of trunk.Version
}

// New starts a server's event loops. It serves nobody until [Server.Serve] is
// called.
func New(cfg Config) (*Server, error) { return newServer(cfg, hooks{}) }

func newServer(cfg Config, h hooks) (_ *Server, err error) {
	if cfg.Now == nil {
		return nil, errors.New("reactor: Now must be set")
	}
	if cfg.Engine == nil && cfg.Journal != nil {
		return nil, errors.New("reactor: a server without an engine has no journal")
	}
	if cfg.Loops == 0 {
		cfg.Loops = DefaultLoops()
	}
	if cfg.Loops < 0 || cfg.Loops > MaxLoops {
		return nil, fmt.Errorf("reactor: %d loops: want 1 to %d, or 0 for the default", cfg.Loops, MaxLoops)
	}
	if cfg.MaxConnections == 0 {
		cfg.MaxConnections = DefaultMaxConnections()
	}
	if cfg.MaxOutput == 0 {
		cfg.MaxOutput = max(DefaultMaxOutput, 2*int64(cfg.MaxJobSize)+stream.HighWater)
	}
	cfg.GatewayMemory = cmp.Or(cfg.GatewayMemory, DefaultGatewayMemory)
	if cfg.MaxConnections < 0 || cfg.IdleTimeout < 0 || cfg.BodyTimeout < 0 || cfg.MaxConnectionAge < 0 ||
		cfg.Grace < 0 || cfg.MaxOutput < 0 || cfg.MaxOutputTotal < 0 || cfg.GatewayMemory < 0 {
		return nil, errors.New("reactor: a limit is negative")
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	h.drain = cmp.Or(h.drain, drainTimeout)
	h.linger = cmp.Or(h.linger, lingerTime)
	h.retire = cmp.Or(h.retire, retirePause)
	h.finish = cmp.Or(h.finish, finishTime)
	h.copied = cmp.Or(h.copied, maxCopied)
	h.recorded = cmp.Or(h.recorded, maxRecorded)
	s := &Server{
		cfg:     cfg,
		log:     cfg.Log,
		hooks:   h,
		aborted: make(chan struct{}),
		done:    make(chan struct{}),
		stopped: make(chan struct{}),
		flushed: make(chan struct{}, 1),
	}
	if err := s.startLoops(); err != nil {
		s.endLoops()
		return nil, fmt.Errorf("reactor: starting the event loops: %w", err)
	}
	return s, nil
}

// Loops is how many event loops the server has.
func (s *Server) Loops() int { return len(s.loops) }

// now is the process's clock, by which loops have their own deadlines.
func (s *Server) now() time.Duration { return time.Duration(s.cfg.Now()) }

func (s *Server) startLoops() (err error) {
	s.gnet, err = gnetloop.Start(gnetloop.Config{Loops: s.cfg.Loops, ReadSize: stream.ReadSize, Log: s.log, Fatal: s.die})
	if err != nil {
		return err
	}
	for _, g := range s.gnet {
		l, err := newLoop(s, g)
		if err != nil {
			return err
		}
		s.loops = append(s.loops, l)
	}
	s.acceptor = accept.New(accept.Config{
		Loops: acceptLoops(s.loops), MaxConnections: s.cfg.MaxConnections, ProxyFrom: s.cfg.ProxyFrom,
		Handshake: s.hooks.handshake, Alert: s.hooks.alert, Log: s.log,
	})
	// The engine never forgets a loop, and leaves deadlines to it. So it hears of them now, when
	// the server can no longer fail to start.
	s.engine.Store(s.cfg.Engine)
	for _, l := range s.loops {
		if s.cfg.Engine != nil {
			l.setEngine(s.cfg.Engine.NewLoop(l), s.cfg.Journal)
		} else {
			l.setEngine(new(engine.Loop), nil)
			l.gateway = newGateway(l, s.now())
		}
		if err := l.gnet.Run(l); err != nil {
			return err
		}
	}
	s.cfg.Engine, s.cfg.Journal = nil, nil // they may be replaced
	return nil
}

// Shutdown ends a Hold, stops accepting and closes the listeners, sends what clients are
// owed, closes all connections and stops the loops. It waits for clients that do
// not read until ctx is done, and then drops their output; a client that waits
// for a job is not waited for. Its error is that of ctx when output was dropped.
// Calls after the first wait for the first to end and return nil. A server without an engine is
// aborted: see Detach.
func (s *Server) Shutdown(ctx context.Context) (err error) {
	s.shutdown.Do(func() {
		s.stopAccepting()
		// gnet takes no more connections once its loops have ended: it would
		// wait for them for ever.
		s.acceptor.Wait()
		s.dialers.Wait()
		s.holds.Wait()
		// Each client is read at most once more: one that never pauses would always be
		// owed something. What a loop is executing counts in unflushed once this has run.
		switch {
		case s.engine.Load() != nil:
			s.release()
		case s.loops[0].gateway == nil:
			s.beginAbort() // nothing can be executed
		}
		s.onLoops(func(l *loop) {
			l.admitAll()
			l.draining = true
			l.gateway.finish(s.now())
		})
		err = s.awaitFlush(ctx)
		s.giveUp = ctx.Done()
		s.stop()
		close(s.stopped)
	})
	<-s.stopped
	return err
}

// stopAccepting makes Serve return.
func (s *Server) stopAccepting() {
	s.acceptor.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing = true
		close(s.done)
	}
}

// awaitFlush waits until no client is owed anything.
func (s *Server) awaitFlush(ctx context.Context) error {
	for s.unflushed.Load() > 0 {
		select {
		case <-s.flushed:
		case <-s.aborted:
			return errAborted
		case <-ctx.Done():
			return fmt.Errorf("reactor: dropping the output of %d clients: %w", s.unflushed.Load(), ctx.Err())
		}
	}
	if s.aborting.Load() {
		return errAborted // it was dropped
	}
	return nil
}

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

// stop ends the loops.
func (s *Server) stop() {
	s.onLoops((*loop).prepareToStop)
	s.endLoops()
}

// endLoops ends gnet's loops, and frees what the server has.
func (s *Server) endLoops() {
	if err := gnetloop.Stop(s.gnet); err != nil {
		s.log.Error("stopping the event loops", "error", err)
	}
	for _, l := range s.loops {
		l.alarm.stop()
	}
	if s.acceptor != nil {
		s.acceptor.Close()
	}
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
