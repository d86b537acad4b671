package metrics

import (
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"trellis/binlog"
	"trellis/cmd/trellisd/internal/access"
	"trellis/cmd/trellisd/internal/audit"
	"trellis/cmd/trellisd/internal/reload"
	"trellis/engine"
	"trellis/engine/account"
	"trellis/engine/stats"
	"trellis/reactor"
)

// Sources are where the metrics come from. Any goroutine calls the functions, also
// several at a time.
type Sources struct {
	// Serving returns what serves clients. It returns nil while nobody is served: the
	// engine may be filled then, and must not be looked at.
	Serving func() *Serving
	// Forwarding returns what forwards clients to the leader of a cluster, nil while they are not. The
	// function itself is nil on a server alone.
	Forwarding func() Reactor
	// Binlog returns the binlog's counts, nil before it is open. The function itself
	// is nil if there is no binlog.
	Binlog func() *binlog.Stats
	// Cluster returns the cluster's state, nil before this server belongs to it. The
	// function itself is nil on a server alone.
	Cluster func() *Cluster
	// Commits are those of the binlog, nil if there is none.
	Commits *Commits
	// Stores are those of a member of a cluster, nil on a server alone.
	Stores *Stores

	// Bodies are those of the server; it is nil, or returns nil, where all are in memory.
	Bodies func() *Bodies

	// Access tells whom access control has let in. It is nil if
	// everybody may do everything.
	Access func() access.Stats
	// Audit tells what was denied, and what the audit trail lacks.
	Audit func() audit.Stats
	// Reloads tell of files that are loaded again when they change.
	Reloads []func() reload.Stats
	// Certificates are those of the server, nil if it has no listener for TLS.
	Certificates func() Certificates

	Limits      engine.Limits
	MaxJobSize  uint32 // bytes
	SegmentSize int64  // bytes, as stats has it; shown by a legacy name only
	Build       Build
	// Usage is the processor time that the process has used.
	Usage func() (user, system time.Duration)
	// Uptime is how long the server has run. Nil stands for the engine's time, which on a
	// member of a cluster began with a snapshot.
	Uptime func() time.Duration
}

// Serving is a server that serves.
type Serving struct {
	Engine  *engine.Engine
	Now     func() engine.Time // the engine's time
	Reactor Reactor
	// Current waits until it is certain that this member led at the time of the call, so
	// that what was read from Engine before counts. It returns false if that is not certain
	// within a second. It is nil on a server alone.
	Current func() bool
}

// Reactor is what a [reactor.Server] tells.
type Reactor interface {
	Stats() reactor.Stats
	Latency() *reactor.Latency
	Handshakes() *reactor.HandshakeStats
}

// Build says which program this is.
type Build struct {
	Version  string
	Revision string // of the sources; empty if unknown
	Date     string // of the revision; empty if unknown
}

// Options say how much is shown.
type Options struct {
	Tubes  int  // the most tubes that are shown one by one, at least 1
	Legacy bool // show the names of messagebird/beanstalkd_exporter too
}

// New makes a registry that has all metrics of the server.
func New(src Sources, opt Options) *prometheus.Registry {
	r := prometheus.NewRegistry()
	register(r, src, opt)
	return r
}

func register(r prometheus.Registerer, src Sources, opt Options) {
	r.MustRegister(
		&collector{src: src, opt: opt, memoryLimit: MemoryLimit()},
		buildInfo(src.Build),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	if c := src.Commits; c != nil {
		r.MustRegister(c.records, c.bytes, c.write, c.sync)
	}
	if s := src.Stores; s != nil {
		r.MustRegister(s.store, s.commit)
	}
}

func buildInfo(b Build) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "beanstalkd_build_info",
		Help: "1, with the server's version, the revision and date of its sources and the compiler's version.",
		ConstLabels: prometheus.Labels{
			"version": b.Version, "revision": b.Revision, "date": b.Date, "goversion": runtime.Version(),
		},
	}, func() float64 { return 1 })
}

type collector struct {
	src Sources
	opt Options

	memoryLimit int64 // bytes; 0 if unknown

	mu         sync.Mutex
	shownTubes map[string]struct{} // guarded by mu; names of the tubes that were shown last
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range described {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.collectAlways(ch)
	s := server{src: &c.src}
	if c.src.Binlog != nil {
		if log := c.src.Binlog(); log != nil {
			binlogMetrics.collect(ch, log)
			s.binlog = *log
		}
	}
	if c.src.Bodies != nil {
		if b := c.src.Bodies(); b != nil {
			bodyMetrics.collect(ch, b)
			if b.Files != nil {
				bodyFileMetrics.collect(ch, b.Files)
			}
		}
	}
	serving := c.src.Serving()
	var shown []stats.Tube
	var rest tubeSums
	var accounts []account.Snapshot
	if serving != nil {
		s.now = serving.Now()
		s.Server = serving.Engine.Snapshot(s.now)
		shown, rest = c.tubes(serving)
		s.orphaned = rest.Orphaned
		for i := range shown {
			s.orphaned += shown[i].Orphaned
		}
		accounts = serving.Engine.Accounts().Snapshots()
		if serving.Current != nil && !serving.Current() {
			serving = nil // another member may lead by now, and its jobs are those of the cluster
		}
	}
	if c.src.Cluster != nil {
		if s := c.src.Cluster(); s != nil {
			s.Serves = s.Serves && serving != nil
			collectCluster(ch, s)
		}
	}
	if serving == nil {
		if c.src.Forwarding != nil {
			if r := c.src.Forwarding(); r != nil {
				c.collectClients(ch, r)
			}
		}
		return
	}
	c.collectClients(ch, serving.Reactor)
	collectLatency(ch, serving.Reactor.Latency())
	serverMetrics.collect(ch, &s)
	ch <- jobWait.with(&s.ReadyTimes)
	for i := range accounts {
		accountMetrics.collect(ch, &accounts[i], label("account", accounts[i].Name))
	}
	restMetrics.collect(ch, &rest)
	if c.opt.Legacy {
		legacyMetrics.collect(ch, &s)
	}
	for i := range shown {
		name := []*dto.LabelPair{label("tube", shown[i].Name)}
		tubeMetrics.collect(ch, &shown[i], name...)
		if c.opt.Legacy {
			legacyTubeMetrics.collect(ch, &shown[i], name...)
		}
	}
}

// collectClients shows those who are connected to this server, and who was not let in.
func (c *collector) collectClients(ch chan<- prometheus.Metric, r Reactor) {
	if c.src.Audit != nil {
		auditMetrics.collect(ch, c.src.Audit())
	}
	if c.src.Access != nil {
		accessMetrics.collect(ch, c.src.Access())
	}
	st := r.Stats()
	collectReactor(ch, &st)
	collectListeners(ch, st.Listeners)
	if c.src.Certificates != nil {
		collectHandshakes(ch, r.Handshakes())
	}
}

// collectAlways shows what matters also while nobody is served: a standby has all jobs in
// memory, and needs sound files when it is to lead.
func (c *collector) collectAlways(ch chan<- prometheus.Metric) {
	for _, stats := range c.src.Reloads {
		collectReload(ch, stats())
	}
	if c.src.Certificates != nil {
		certificates := c.src.Certificates()
		certificateMetrics.collect(ch, certificates)
		collectReload(ch, certificates.Reload)
	}
	processMetrics.collect(ch, c.memoryLimit)
}

func collectReload(ch chan<- prometheus.Metric, s reload.Stats) {
	reloadMetrics.collect(ch, s, label("file", s.What))
}
