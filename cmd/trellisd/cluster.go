package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"trellis/binlog/replica"
	peerwire "trellis/binlog/replica/wire"
	"trellis/cmd/trellisd/internal/cluster"
	"trellis/cmd/trellisd/internal/listen"
	"trellis/cmd/trellisd/internal/metrics"
	"trellis/cmd/trellisd/internal/options"
	"trellis/cmd/trellisd/internal/web"
	"trellis/engine"
	"trellis/engine/account"
	"trellis/reactor"
)

// handOverTimeout is how long a leader that is told to stop tries to have another member
// lead. It takes milliseconds if there is one.
const handOverTimeout = 3 * time.Second

var errSocketActivation = errors.New("a member of a cluster opens its sockets itself, whenever it leads: " +
	"it cannot use those that systemd has opened; disable the socket unit")

// serveMember runs a member of a cluster until it is told to stop.
func serveMember(opt *options.Options, sigs *signals, log *slog.Logger) error {
	plain, tls, err := listen.Inherited()
	if inherited := (&sockets{plain: plain, tls: tls}); err == nil && len(inherited.all()) > 0 {
		inherited.close(log)
		err = errSocketActivation
	}
	if err != nil {
		return exitWith(exitListen, err)
	}
	peers, err := listenForPeers(opt)
	if err != nil {
		return exitWith(exitListen, err)
	}
	defer peers.Close()
	log.Info("listening for peers", "addr", peers.Addr().String())
	return sigs.during(func() error { return runMember(peers, opt, sigs, log) }, log)
}

func listenForPeers(opt *options.Options) (net.Listener, error) {
	flag := "--node"
	if opt.Cluster.Listen != "" {
		flag = "--cluster-listen"
	}
	l, err := net.Listen("tcp", opt.Cluster.ListenAddr())
	if err != nil {
		hint := ""
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			hint = "; stop the process that has it, or give another port"
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			hint = "; this machine has no such address: give one that it has with --cluster-listen"
		}
		return nil, fmt.Errorf("%s: cannot %w%s", flag, err, hint)
	}
	return l, nil
}

// runMember runs a member with an open socket for its peers.
func runMember(peers net.Listener, opt *options.Options, sigs *signals, log *slog.Logger) (err error) {
	mon, err := openMonitor(opt, log)
	if err != nil {
		return exitWith(exitListen, err)
	}
	defer mon.close(log)
	if err := changeUser(opt.User, nil, log); err != nil {
		return err
	}
	if mon.audit, err = openAudit(opt, log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mon.audit.Close()) }()
	end, err := openQueue(opt, mon, sigs, log)
	if err != nil {
		return err
	}
	defer end()
	var peerTLS *peerwire.Credentials // nil if members speak without
	if c := &opt.Cluster; c.Cert != "" {
		if peerTLS, err = peerwire.LoadTLS(c.Cert, c.Key, c.CA, log); err != nil {
			return exitWith(exitUsage, err)
		}
		peerTLS.MemberNames, peerTLS.AdminNames = c.MemberNames, c.AdminNames
	}
	mon.leads, mon.stores = new(web.Readiness), metrics.NewStores()
	mon.serve(opt, log)
	collectSoon()
	limitHeap(opt)
	m, err := cluster.Open(cluster.Config{
		Dir: opt.Binlog, Self: opt.Cluster.Node, Nodes: opt.Cluster.Nodes, TLS: peerTLS,
		Listener: peers, Queue: mon.queue, Observer: mon.stores, Log: log,
		Node: replica.Options{Bodies: opt.BodyMemory},
	})
	if err != nil {
		return exitWith(exitBinlog, err)
	}
	defer func() {
		// Close waits for answers to other members, which what hangs may hold up for ever.
		if !errors.Is(err, replica.ErrHung) && !errors.Is(err, replica.ErrStuck) {
			err = errors.Join(err, m.Close())
		}
	}()
	mon.member.Store(m)
	unless := func(why func() string) func() error {
		return func() error {
			if why := why(); why != "" {
				return errors.New(why)
			}
			return nil
		}
	}
	mon.ready.ReadyUnless(unless(m.Unready))
	mon.leads.ReadyUnless(unless(m.State))
	m.Changed(func() {
		if m.Status() != nil { // until then a signal ends the process at once: reading a log may take long
			sigs.serving.Store(true)
		}
		mon.show()
	})
	return superviseMember(m, mon, opt.StopDelay, sigs, log)
}

// openQueue makes the queue of a member, mon.queue. It opens and closes the clients' sockets, and loads
// the certificates and the file of --auth-file, so that a mistake shows at the start and not
// when the member is to lead. end stops watching these files.
func openQueue(opt *options.Options, mon *monitor, sigs *signals, log *slog.Logger) (end func(), err error) {
	s := new(sockets)
	err = s.open(opt, log)
	s.close(log)
	if err != nil {
		return nil, exitWith(exitListen, err)
	}
	certs, acc, err := loadFiles(opt, s, mon, log)
	if err != nil {
		return nil, err
	}
	info, err := newInfo()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	info.Uptime = func() time.Duration { return time.Since(began) }
	mon.uptime = info.Uptime
	files := newReloads(certs, acc, mon.protection, sigs, log)
	ec := engineConfig(opt, acc, info)
	ec.Audit, ec.Reload = mon.audit.Command, files.answer
	rc := reactorConfig(opt, log)
	rc.Audit = mon.audit.Command
	spareProcs(rc.Loops, spareOfMember)
	qc := cluster.QueueConfig{Engine: ec, Log: log, Listen: func() (plain, tls []net.Listener, err error) {
		s := new(sockets)
		if err := s.open(opt, log); err != nil {
			s.close(log)
			return nil, nil, err
		}
		return s.plain, s.tls, nil
	}}
	if certs != nil {
		qc.TLS = certs.Config()
	}
	if acc != nil {
		rc.Access = acc
	}
	qc.Serves = func(srv *reactor.Server) { serves(certs, acc, srv) }
	qc.Reactor = rc
	mon.queue = cluster.NewQueue(qc)
	return files.watch(), nil
}

// superviseMember runs a member until a signal says stop, or it cannot go on.
func superviseMember(m *cluster.Member, mon *monitor, delay time.Duration, sigs *signals, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	// A standby is as ready as a leader to a service manager.
	notify(daemon.SdNotifyReady, log)
	var delayed <-chan time.Time
	for {
		select {
		case <-sigs.drain:
			mon.queue.Drain()
			log.Info("drain mode: refusing new jobs, whenever this node leads")
		case sig := <-sigs.stop:
			log.Info("stopping", "signal", sig.String())
			notify(daemon.SdNotifyStopping, log)
			mon.notReady("stopping")
			delayed = time.After(delay)
		case <-delayed:
			handOver(m, mon.queue, log)
			cancel()
			err := <-ran
			if err == nil {
				log.Info("stopped")
			}
			return err
		case err := <-ran:
			mon.notReady("the node has failed")
			return err
		}
	}
}

// handOver makes another member the leader if this one leads. Then, or if none takes over, clients get what they
// are owed, as from a server alone. All that takes stopTimeout at most.
func handOver(m *cluster.Member, queue *cluster.Queue, log *slog.Logger) {
	queue.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if queue.Serving() != nil {
		over, done := context.WithTimeout(ctx, handOverTimeout)
		err := m.HandOver(over)
		done()
		if err == nil {
			log.Info("another member leads")
		} else {
			log.Info("no other member takes over", "reason", err)
		}
	}
	if err := queue.Shutdown(ctx); err != nil {
		log.Warn("some clients did not read their last replies in time", "error", err)
	}
}

// clusterStats is nil on a server alone, and before this member belongs to a cluster.
func (m *monitor) clusterStats() *metrics.Cluster {
	member := m.member.Load()
	if member == nil {
		return nil
	}
	s := member.Status()
	if s == nil {
		return nil
	}
	return &metrics.Cluster{
		Status: *s, Leaderships: m.queue.Leaderships(), Gone: m.queue.Gone(), Contradictions: m.queue.Contradictions(),
		Ready: member.Unready() == "",
	}
}

// memberBodies is nil on a server alone, and while no bodies leave memory.
func (m *monitor) memberBodies() *metrics.Bodies {
	member := m.member.Load()
	if member == nil {
		return nil
	}
	s, e := member.Bodies(), m.queue.Present()
	if s == nil || e == nil {
		return nil
	}
	b := e.BodyStats()
	return &metrics.Bodies{
		Memory: s.Memory, Limit: s.Limit, Evicted: s.Freed, Reads: s.Reads,
		Unreadable: s.Files.Unreadable, Stuck: s.Files.Stuck,
		ColdJobs: b.ColdJobs, ColdBytes: b.ColdBytes, Waits: b.Waits, Late: b.LateWaits, PutWaits: b.PutWaits,
		Files: &metrics.BodyFiles{Spilled: s.Spilled, Bytes: s.Files.Bytes},
	}
}

// forwarding is what forwards clients to the leader, nil while they are not.
func (m *monitor) forwarding() metrics.Reactor {
	if f := m.queue.Forwarding(); f != nil {
		return f.Reactor
	}
	return nil
}

// notReady says why a member is not ready from now on, and does not lead.
func (m *monitor) notReady(why string) {
	m.ready.NotReady(why)
	m.leads.NotReady(why)
}

// show publishes what a member serves now. Any goroutine may call it.
func (m *monitor) show() {
	m.showing.Lock()
	defer m.showing.Unlock()
	var serving *metrics.Serving
	var srv *reactor.Server
	if q := m.queue.Serving(); q != nil {
		srv = q.Reactor
		serving = &metrics.Serving{Engine: q.Engine, Now: q.Now, Reactor: q.Reactor, Current: q.Current}
	} else if f := m.queue.Forwarding(); f != nil {
		srv = f.Reactor // the console's connection goes to the leader like others
	}
	m.shows(serving, srv)
}

// engineConfig is what the command line says of engines, and the file of --auth-file of accounts.
func engineConfig(opt *options.Options, acc *accessControl, info engine.Info) engine.Config {
	var accounts *account.Accounts
	if acc != nil {
		accounts = &acc.Accounts
	}
	return engine.Config{
		Accounts:    accounts,
		MaxJobSize:  opt.MaxJobSize,
		Limits:      limits(opt),
		Stock:       opt.NoExtensions,
		SegmentSize: opt.SegmentSize,
		Info:        info,
	}
}

// reactorConfig is what the command line says of reactors.
func reactorConfig(opt *options.Options, log *slog.Logger) reactor.Config {
	return reactor.Config{
		Loops:      cmp.Or(opt.Loops, reactor.DefaultLoops()),
		Log:        log,
		MaxJobSize: opt.MaxJobSize,
		Extensions: !opt.NoExtensions,

		ProxyFrom:        opt.ProxyFrom,
		MaxConnections:   opt.MaxConnections,
		KeepAlive:        opt.KeepAlive,
		IdleTimeout:      opt.IdleTimeout,
		BodyTimeout:      opt.BodyTimeout,
		MaxConnectionAge: opt.MaxConnectionAge,
		Grace:            opt.Grace,
		MaxOutput:        opt.MaxOutput,
		MaxOutputTotal:   opt.MaxOutputTotal,
		GatewayMemory:    opt.GatewayMemory,
	}
}
