package console

import (
	"cmp"
	"context"
	"html/template"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"trellis/cmd/internal/client"

	"golang.org/x/sync/semaphore"
)

// requestTime is how long a request may take, the server's answers included. Tests have more.
var requestTime = 10 * time.Second

const (
	// parallelRequests is how many requests are answered at a time. Others wait for
	// at most queueTime.
	parallelRequests = 8
	queueTime        = 2 * time.Second

	// parallelDownloads is how many bodies are sent at a time, since each is in memory.
	parallelDownloads = 4

	// maxBody is the largest body in bytes that is fetched.
	maxBody = 16 << 20
)

// Config is what a console needs.
type Config struct {
	// Server is how the server is called on pages, such as its address.
	Server string
	// Base is the path that all paths begin with, without a slash at its end; usually
	// empty.
	Base string
	// Dial connects to the server; the connection has been authenticated.
	Dial func(context.Context) (*client.Conn, error)
	// Local tells what the protocol does not; nil if nobody does.
	Local Local

	// Write allows changes.
	Write bool
	// Who names the user who makes a request for a change. It returns false if nobody has
	// authenticated, and then the change is refused. Several goroutines may call it at
	// once. It may be nil if Write is not set.
	Who func(*http.Request) (user string, ok bool)
	// Writes reports whether a user whom Who has named may change anything; nil for everybody.
	// Several goroutines may call it at once.
	Writes func(user string) bool
	// Hosts are names by which requests may come besides those of loopback and the
	// address that was connected to.
	Hosts []string

	// Log gets every attempt at a change; nil means slog.Default().
	Log *slog.Logger

	// servers are links to other consoles beside this one.
	servers []serverLink
	// logOut is where the form goes that ends a session; empty if there is none.
	logOut string
}

// serverLink leads to the console of a server.
type serverLink struct {
	Name, Path string
	Here       bool
}

// Console is an [http.Handler]. Make one with New.
type Console struct {
	cfg     Config
	log     *slog.Logger
	pool    pool
	history history
	table   tubeTable
	actions actionLog
	pages   map[string]*template.Template
	handler http.Handler

	downloads *semaphore.Weighted
}

// New makes a console. It connects to the server when it has to.
func New(cfg Config) *Console {
	c := &Console{cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()), downloads: semaphore.NewWeighted(parallelDownloads)}
	c.pool.dial, c.pool.inUse = cfg.Dial, semaphore.NewWeighted(maxConns)
	c.history.tubes = make(map[string]*trend)
	c.pages = c.parsePages()
	c.handler = c.guard(c.routes())
	return c
}

// ServeHTTP implements [http.Handler].
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

// Run measures once a second until ctx is done, and then ends the connections. It must be
// called once.
func (c *Console) Run(ctx context.Context) {
	defer c.pool.close()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			within, cancel := context.WithTimeout(ctx, measureTime)
			c.measure(within, now)
			cancel()
		case <-ctx.Done():
			return
		}
	}
}

// routes are all paths. Each has its methods; others are answered 405.
func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	base := c.cfg.Base
	get := func(path string, f func(*request) error) { mux.Handle("GET "+base+path, c.page(f)) }
	get("/{$}", c.overview)
	get("/tubes", c.tubes)
	get("/tubes/{tube}", c.tube)
	get("/tubes/{tube}/jobs", c.jobs)
	get("/jobs/{id}", c.job)
	get("/jobs/{id}/body", c.download)
	get("/groups/{group}", c.group)
	get("/find", c.find)
	get("/failed", c.failed)
	get("/connections", c.connections)
	get("/put", c.putForm)
	get("/server", c.server)
	get("/actions", func(r *request) error { return r.render("actions", "Actions", "actions", c.actions.all()) })
	get("/", func(*request) error { return errNoPage })
	for _, ch := range changes {
		mux.Handle("POST "+base+ch.path, c.form(ch))
		mux.Handle("POST "+base+apiRoot+ch.api(), c.call(ch))
	}
	for _, e := range apiReads {
		mux.Handle("GET "+base+apiRoot+e.path, c.api(e.read))
	}
	mux.Handle("GET "+base+apiRoot+"/openapi.json", http.HandlerFunc(serveDescription))
	mux.Handle("GET "+base+apiRoot+"/", c.api(func(*request) (any, error) { return nil, errNoPage }))
	for name, a := range assets {
		mux.Handle("GET "+base+"/static/"+a.tag+"/"+name, a)
	}
	return mux
}

// Several is the console of several servers: each has one of its own, at /1, /2 and so on below a base.
type Several struct {
	consoles []*Console
	mux      *http.ServeMux
}

// NewSeveral makes the console of at least one server. Of a single one it is that server's
// console; of several, which have the same Base, it is below that.
func NewSeveral(cfgs []Config) *Several {
	s := &Several{mux: http.NewServeMux()}
	if len(cfgs) == 1 {
		c := New(cfgs[0])
		s.consoles = []*Console{c}
		s.mux.Handle("/", c)
		return s
	}
	base := cfgs[0].Base
	for i, cfg := range cfgs {
		cfg.Base = base + "/" + strconv.Itoa(i+1)
		for k := range cfgs {
			cfg.servers = append(cfg.servers, serverLink{cfgs[k].Server, base + "/" + strconv.Itoa(k+1) + "/", k == i})
		}
		c := New(cfg)
		s.consoles = append(s.consoles, c)
		s.mux.Handle(cfg.Base+"/", c)
	}
	s.mux.Handle("GET "+base+"/{$}", http.RedirectHandler(base+"/1/", http.StatusSeeOther))
	return s
}

// ServeHTTP implements [http.Handler].
func (s *Several) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Run measures until ctx is done: see Console.Run.
func (s *Several) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, c := range s.consoles {
		running.Go(func() { c.Run(ctx) })
	}
	running.Wait()
}
