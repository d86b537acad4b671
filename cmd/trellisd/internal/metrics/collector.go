package metrics

import (
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"trellis/binlog"
	"trellis/cmd/trellisd/internal/access"
	"trellis/cmd/trellisd/internal/certs"
	"trellis/cmd/trellisd/internal/reload"
	"trellis/engine"
	"trellis/reactor"
)

// Sources are what is shown. The functions are called by any goroutine, also by
// several at a time.
type Sources struct {
	// Serving is what serves clients. It is nil before that, when the engine may
	// be being filled and nobody may look at it.
	Serving func() *Serving
	// Binlog tells what the binlog does, nil before it is open. It is nil itself
	// if there is no binlog.
	Binlog func() *binlog.Stats
	// Cluster tells how the cluster is, nil before this server belongs to it. It is nil
	// itself on a server alone.
	Cluster func() *Cluster
	// Commits are those of the binlog, nil if there is none.
	Commits *Commits

	// Access tells whom access control has let in and what it has denied. It is nil if
	// everybody may do everything.
	Access func() access.Stats
	// Reloads tell of files that are loaded again when they change.
	Reloads []func() reload.Stats

	Limits      engine.Limits
	MaxJobSize  uint32 // bytes
	SegmentSize int64  // bytes, of the binlog; shown by a legacy name only
	Build       Build
	// Usage is the processor time that the process has used.
	Usage func() (user, system time.Duration)
}

// Serving is a server that serves.
type Serving struct {
	Engine  *engine.Engine
	Now     func() engine.Time // the engine's time
	Reactor Reactor
	// Certificates are those of the server, nil if it has no listener for TLS.
	Certificates func() certs.Stats
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
		&collector{src: src, opt: opt, memoryLimit: memoryLimit()},
		buildInfo(src.Build),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	if src.Commits != nil {
		src.Commits.register(r)
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

	mu    sync.Mutex
	shown map[string]struct{} // guarded by mu; names of the tubes that were shown last
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range described {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	var log *binlog.Stats
	if c.src.Binlog != nil {
		if log = c.src.Binlog(); log != nil {
			collectBinlog(ch, log)
		}
	}
	if c.src.Cluster != nil {
		if s := c.src.Cluster(); s != nil {
			collectCluster(ch, s)
		}
	}
	serving := c.src.Serving()
	if serving == nil {
		return
	}
	c.collectAccess(ch)
	st := serving.Reactor.Stats()
	collectReactor(ch, &st)
	collectListeners(ch, st.Listeners)
	collectLatency(ch, serving.Reactor.Latency())
	if serving.Certificates != nil {
		collectHandshakes(ch, serving.Reactor.Handshakes())
		collectCertificates(ch, serving.Certificates())
	}
	now := serving.Now()
	s := serving.Engine.Snapshot(now)
	c.collectServer(ch, s)
	shown, rest := c.tubes(serving)
	for i := range shown {
		collectTube(ch, &shown[i])
	}
	collectOthers(ch, &rest)
	if c.opt.Legacy {
		c.collectLegacy(ch, now, s, shown, log)
	}
}
