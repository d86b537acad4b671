package web

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	toolkit "github.com/prometheus/exporter-toolkit/web"
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
	Pprof   bool
	// Console answers all other requests; nil for none.
	Console http.Handler
	// File says how requests are protected, in the format of Prometheus's exporters;
	// empty for not at all. It must have passed Check.
	File string
	Log  *slog.Logger
}

// Server is an HTTP server. Make one with New.
type Server struct {
	http   http.Server
	conns  connections
	file   string
	log    *slog.Logger
	public http.Handler // of /healthz and /readyz, which are not protected
}

// New makes a server. It adds to the registry what scrapes cost.
func New(cfg Config) *Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics(cfg.Metrics, cfg.Log))
	public := http.NewServeMux()
	public.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "ok")
	})
	public.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := cfg.Ready.Err(); err != nil {
			answer(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		answer(w, http.StatusOK, "ok")
	})
	mux.Handle("/healthz", public)
	mux.Handle("/readyz", public)
	index := "/metrics\n/healthz\n/readyz"
	if cfg.Pprof {
		index += "\n/debug/pprof/"
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	if cfg.Console != nil {
		mux.Handle("/", cfg.Console)
	} else {
		mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, index)
		})
	}
	s := &Server{file: cfg.File, log: cfg.Log, public: public}
	s.http = http.Server{
		Handler:           mux,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnState:         s.conns.changed,
		ErrorLog:          log.New(&errorLog{log: cfg.Log}, "", 0),
	}
	return s
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
	var err error
	if s.file == "" {
		err = s.http.Serve(l)
	} else {
		err = toolkit.Serve(&protectedListener{Listener: l, server: s}, &s.http, &toolkit.FlagConfig{WebConfigFile: &s.file}, s.log)
	}
	if !errors.Is(err, http.ErrServerClosed) {
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
