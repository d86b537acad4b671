package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"trellis/binlog"
	"trellis/cmd/trellisd/internal/audit"
	"trellis/cmd/trellisd/internal/cluster"
	"trellis/cmd/trellisd/internal/metrics"
	"trellis/cmd/trellisd/internal/options"
	"trellis/cmd/trellisd/internal/web"
	"trellis/reactor"
)

// monitorTimeout is how long scrapes that are under way, and the console, may take when the
// server has stopped.
const monitorTimeout = time.Second

// monitor is the HTTP side: metrics, health and the console. Its methods may be
// called without --http too, when nobody is shown anything.
type monitor struct {
	listener     net.Listener // nil without --http
	web          *web.Server
	done         chan struct{} // closed when web serves no more
	ready        web.Readiness
	leads        *web.Readiness // of a member of a cluster; otherwise &ready. Set before serve
	commits      *metrics.Commits
	showing      sync.Mutex                      // held by show, so that what is newer is shown last
	protection   *web.Protection                 // nil without --web-config-file; set before serve
	audit        *audit.Trail                    // set before serve
	access       *accessControl                  // nil without access control; set before serve
	certificates func() metrics.Certificates     // nil without TLS; set before serve
	uptime       func() time.Duration            // of a member of a cluster; nil on a server alone. Set before serve
	binlog       atomic.Pointer[binlog.Log]      // nil until it is open
	bodies       atomic.Pointer[evictor]         // nil unless bodies leave memory
	serving      atomic.Pointer[metrics.Serving] // nil while clients are not served
	queue        *cluster.Queue                  // of a member of a cluster; set before serve
	stores       *metrics.Stores                 // likewise
	member       atomic.Pointer[cluster.Member]  // nil on a server alone, and until it is open

	sockets []net.Listener                 // for clients, without TLS; set before serve
	reactor atomic.Pointer[reactor.Server] // set with serving
	console func(context.Context)          // ends the console, and waits for that until ctx is done; nil if there is none
}

// openMonitor opens the HTTP side's socket. It serves nothing yet.
func openMonitor(opt *options.Options, log *slog.Logger) (*monitor, error) {
	m := new(monitor)
	m.leads = &m.ready
	if opt.HTTP == "" {
		return m, nil
	}
	l, err := net.Listen("tcp", opt.HTTP)
	if err != nil {
		hint := ""
		if errors.Is(err, syscall.EADDRINUSE) {
			hint = "; stop the process that has it, or choose another port"
		}
		return nil, fmt.Errorf("--http: cannot %w%s", err, hint)
	}
	log.Info("listening for HTTP", "addr", l.Addr().String())
	m.listener = l
	return m, nil
}

// protect loads the file that protects the HTTP side, if there is one.
func (m *monitor) protect(opt *options.Options, log *slog.Logger) (err error) {
	if opt.WebConfig == "" {
		return nil
	}
	if m.protection, err = web.Open(opt.WebConfig, log); err != nil {
		return exitWith(exitUsage, fmt.Errorf("--web-config-file: %w", err))
	}
	if opt.Console == options.ConsoleWrite && !m.protection.Authenticates() {
		return exitWith(exitUsage, fmt.Errorf("--console=write lets people delete jobs, and needs to know who they are: "+
			"name them in %s, under basic_auth_users, or have it require certificates", opt.WebConfig))
	}
	names := m.protection.Names()
	if opt.Console == options.ConsoleWrite && names != nil && !slices.ContainsFunc(names, mayWrite(opt)) {
		return exitWith(exitUsage,
			fmt.Errorf("--console=write: nobody whom %s names may write; add a name, or give one of those to --console-writers",
				opt.WebConfig))
	}
	return nil
}

// serve begins to answer HTTP requests.
func (m *monitor) serve(opt *options.Options, log *slog.Logger) {
	if m.listener == nil {
		return
	}
	src := metrics.Sources{
		Serving:      m.serving.Load,
		Certificates: m.certificates,
		Limits:       limits(opt),
		MaxJobSize:   opt.MaxJobSize,
		SegmentSize:  cmp.Or(opt.SegmentSize, binlog.DefaultSegmentSize),
		Build:        metrics.Build{Version: version, Revision: commit, Date: date},
		Usage:        usage,
		Uptime:       m.uptime,
		Stores:       m.stores,
	}
	if opt.Cluster.Member() {
		src.Cluster, src.Forwarding, src.Bodies = m.clusterStats, m.forwarding, m.memberBodies
	} else if opt.Binlog != "" {
		m.commits = metrics.NewCommits()
		src.Commits, src.Binlog = m.commits, m.binlogStats
		src.Bodies = m.bodyStats
	}
	src.Audit = m.audit.Stats
	if m.access != nil {
		src.Access = m.access.Stats
		src.Reloads = append(src.Reloads, m.access.file.Stats)
	}
	if m.protection != nil {
		src.Reloads = append(src.Reloads, m.protection.Stats)
	}
	names := hostNames(opt)
	var page http.Handler
	if c := m.openConsole(opt, src, names, log); c != nil {
		page = c
	}
	m.web = web.New(web.Config{
		Metrics:    metrics.New(src, metrics.Options{Tubes: opt.MetricsTubes, Legacy: opt.MetricsLegacy}),
		Ready:      &m.ready,
		Leads:      m.leads,
		Pprof:      opt.Pprof,
		Console:    page,
		Hosts:      names,
		Protection: m.protection,
		Log:        log,
	})
	m.done = make(chan struct{})
	go func() {
		defer close(m.done)
		if err := m.web.Serve(m.listener); err != nil {
			log.Error("serving HTTP", "error", err)
		}
	}()
}

// hostNames are those under which HTTP may be asked, besides those of loopback.
func hostNames(opt *options.Options) []string {
	names := append([]string{opt.HTTP}, opt.HTTPHosts...)
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	return names
}

// shows publishes the server that serves clients; both are nil for none.
func (m *monitor) shows(s *metrics.Serving, srv *reactor.Server) {
	m.serving.Store(s)
	m.reactor.Store(srv)
}

// binlogStats is nil while there is no binlog.
func (m *monitor) binlogStats() *binlog.Stats {
	l := m.binlog.Load()
	if l == nil {
		return nil
	}
	s := l.Stats()
	return &s
}

// bodyStats is nil while no bodies leave memory.
func (m *monitor) bodyStats() *metrics.Bodies {
	e := m.bodies.Load()
	if e == nil {
		return nil
	}
	s, b := e.log.Stats(), e.eng.BodyStats()
	return &metrics.Bodies{
		Memory: e.eng.BodyMemory(), Limit: e.limit, Evicted: e.evicted.Load(), Reads: e.log.Reads(),
		Unreadable: s.Unreadable, Stuck: s.Stuck, Unindexed: s.Unindexed,
		ColdJobs: b.ColdJobs, ColdBytes: b.ColdBytes, Waits: b.Waits, Late: b.LateWaits, PutWaits: b.PutWaits,
	}
}

// close ends the HTTP side.
func (m *monitor) close(log *slog.Logger) {
	switch {
	case m.listener == nil:
	case m.web == nil:
		_ = m.listener.Close()
	default:
		ctx, cancel := context.WithTimeout(context.Background(), monitorTimeout)
		defer cancel()
		if err := m.web.Shutdown(ctx); err != nil {
			log.Warn("ending HTTP requests", "error", err)
		}
		<-m.done
		if m.console != nil {
			m.console(ctx)
		}
	}
}
