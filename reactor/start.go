package reactor

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"trellis/engine"
	"trellis/reactor/internal/accept"
	"trellis/reactor/internal/clock"
	"trellis/reactor/internal/gnetloop"
	"trellis/reactor/internal/link"
	"trellis/reactor/internal/relay"
	"trellis/reactor/internal/stream"
)

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
	if cfg.MaxConnections < 0 || cfg.KeepAlive < 0 || cfg.IdleTimeout < 0 || cfg.BodyTimeout < 0 ||
		cfg.MaxConnectionAge < 0 || cfg.Grace < 0 || cfg.MaxOutput < 0 || cfg.MaxOutputTotal < 0 || cfg.GatewayMemory < 0 {
		return nil, errors.New("reactor: a limit is negative")
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if h.boot == nil {
		h.boot = cfg.BootTime
	}
	if h.boot == nil {
		h.boot = clock.Boot
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

func (s *Server) startLoops() (err error) {
	s.gnet, err = gnetloop.Start(gnetloop.Config{
		Loops: s.cfg.Loops, ReadSize: stream.ReadSize, Poller: s.cfg.Poller, Log: s.log, Fatal: s.die,
	})
	if err != nil {
		return err
	}
	var loops []accept.Loop
	for _, g := range s.gnet {
		l, err := newLoop(s, g)
		if err != nil {
			return err
		}
		s.loops, loops = append(s.loops, l), append(loops, l)
	}
	s.acceptor = accept.New(accept.Config{
		Loops: loops, MaxConnections: s.cfg.MaxConnections, ProxyFrom: s.cfg.ProxyFrom, KeepAlive: s.cfg.KeepAlive,
		Handshake: s.hooks.handshake, Alert: s.hooks.alert, Simulated: s.cfg.Poller != nil, Log: s.log,
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

// newLoop returns a loop that the engine does not know yet.
func newLoop(s *Server, g *gnetloop.Loop) (*loop, error) {
	if hook := s.hooks.loop; hook != nil {
		if err := hook(); err != nil {
			return nil, err
		}
	}
	l := &loop{
		server: s, gnet: g, nextLook: clock.Never,
		throttled: throttled{at: engine.MaxTime},
	}
	l.links.Init(link.Config{Poller: g, Wake: g.Wake})
	l.streams = stream.New(stream.Config{
		Owner: l, Poller: g, MaxOutput: s.cfg.MaxOutput, MaxOutputTotal: s.cfg.MaxOutputTotal,
	})
	if s.cfg.Access != nil {
		l.granted = make(map[*conn]*engine.Grant)
		places := max(1, min(maxUnauthenticated, s.cfg.MaxConnections/4)/s.cfg.Loops)
		l.unauthenticated = accept.NewCrowd[*conn](places, 1)
	}
	l.effects.fence.Store(relay.NoIndex)
	l.alarm = clock.New(g.Wake, s.now)
	return l, nil
}

// endLoops ends gnet's loops, and frees what the server has.
func (s *Server) endLoops() {
	if err := gnetloop.Stop(s.gnet); err != nil {
		s.log.Error("stopping the event loops", "error", err)
	}
	for _, l := range s.loops {
		l.alarm.Stop()
	}
	if s.acceptor != nil {
		s.acceptor.Close()
	}
}
