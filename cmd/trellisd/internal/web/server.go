package web

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"trellis/cmd/internal/hosts"
)

const (
	// parallelScrapes is how many scrapes may be under way. It is enough for a
	// pair of Prometheus servers and somebody who looks by hand.
	parallelScrapes = 3

	// scrapeTimeout is Prometheus's own default: nobody waits longer.
	scrapeTimeout = 10 * time.Second

	readTimeout  = 5 * time.Second
	writeTimeout = 2 * scrapeTimeout // profiles have the time that was asked for on top
	idleTimeout  = 2 * time.Minute
	maxHeader    = 16 << 10
)

// Config is what a Server shows.
type Config struct {
	Metrics *prometheus.Registry
	Ready   *Readiness
	Leads   *Readiness // whether the server leads its cluster; nil for one that is alone: as Ready
	Pprof   bool
	// Console answers all other requests; nil for none.
	Console http.Handler
	// Hosts are names by which everything but health may be asked for, besides those of
	// loopback and the address that was connected to.
	Hosts []string
	// Protection says how requests are protected; nil for not at all.
	Protection *Protection
	Log        *slog.Logger
}

// Server is an HTTP server. Make one with New.
type Server struct {
	http  http.Server
	conns connections
	tls   bool
}

// New makes a server. It adds to the registry what scrapes cost.
func New(cfg Config) *Server {
	mux := http.NewServeMux()
	own := func(path string, h http.Handler) { mux.Handle(path, ownHosts(cfg.Hosts, h)) }
	own("GET /metrics", metrics(cfg.Metrics, cfg.Log))
	public := http.NewServeMux()
	public.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "ok")
	})
	public.Handle("GET /readyz", cfg.Ready)
	public.Handle("GET /leaderz", cmp.Or(cfg.Leads, cfg.Ready))
	index := "/metrics\n/healthz\n/readyz\n/leaderz"
	if cfg.Pprof {
		index += "\n/debug/pprof/"
		own("GET /debug/pprof/", shortened(pprof.Index))
		own("GET /debug/pprof/cmdline", http.HandlerFunc(pprof.Cmdline))
		own("GET /debug/pprof/profile", shortened(pprof.Profile))
		own("GET /debug/pprof/symbol", http.HandlerFunc(pprof.Symbol))
		own("POST /debug/pprof/symbol", http.HandlerFunc(pprof.Symbol))
		own("GET /debug/pprof/trace", shortened(pprof.Trace))
	}
	if cfg.Console != nil {
		mux.Handle("/", cfg.Console)
	} else {
		own("GET /{$}", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, index)
		}))
	}
	s := new(Server)
	var protected http.Handler = mux
	if cfg.Protection != nil {
		protected = cfg.Protection.protect(mux)
	}
	s.http = http.Server{
		Handler:           healthFirst(public, s.conns.limited(protected)),
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnState:         s.conns.changed,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{},
				c)
		},
		ErrorLog: log.New(&errorLog{log: cfg.Log}, "", 0),
	}
	s.tls = cfg.Protection != nil && cfg.Protection.secure(&s.http)
	return s
}

// healthFirst has what is not protected answer health checks, and next all else.
func healthFirst(health, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, posts := next, r.Method == http.MethodPost
		switch r.URL.Path {
		case "/healthz", "/readyz", "/leaderz":
			h, posts = health, false
		}
		if r.ContentLength != 0 && r.ProtoMajor == 1 && !posts {
			// Nobody wants the body. To wait for it, as net/http does, would keep the connection.
			w.Header().Set("Connection", "close")
			_ = http.NewResponseController(w).SetReadDeadline(time.Now())
		}
		h.ServeHTTP(w, r)
	})
}

// ownHosts lets requests through that come under a name of this host.
func ownHosts(names []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hosts.Own(r, names) {
			answer(w, http.StatusMisdirectedRequest, hosts.Refusal)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func metrics(r *prometheus.Registry, log *slog.Logger) http.Handler {
	return promhttp.InstrumentMetricHandler(r, promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		Registry:            r,
		MaxRequestsInFlight: parallelScrapes,
		Timeout:             scrapeTimeout,
		EnableOpenMetrics:   true,
	}))
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n")
}

// Serve answers requests on l until Shutdown.
func (s *Server) Serve(l net.Listener) error {
	serve := s.http.Serve
	if s.tls {
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown ends the service. Requests that are under way have until ctx is done.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}

// maxProfile is how many seconds a profile or a trace may take. A trace is in memory meanwhile.
const maxProfile = 60

// shortened has a handler of net/http/pprof take maxProfile seconds at most.
func shortened(profile http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		// Not a number is not <= either.
		if n, err := strconv.ParseFloat(q.Get("seconds"), 64); err == nil && !(n <= maxProfile) {
			q.Set("seconds", strconv.Itoa(maxProfile))
			r.URL.RawQuery = q.Encode()
		}
		profile(w, r)
	})
}
