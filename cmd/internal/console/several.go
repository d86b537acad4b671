package console

import (
	"context"
	"net/http"
	"strconv"
	"sync"
)

// Several is the console of several servers: each has one of its own, at /1, /2 and so on.
type Several struct {
	consoles []*Console
	mux      *http.ServeMux
}

// NewSeveral makes the console of at least one server. Of a single one it is that server's
// console; of several it sets the Base of each.
func NewSeveral(cfgs []Config) *Several {
	s := &Several{mux: http.NewServeMux()}
	if len(cfgs) == 1 {
		c := New(cfgs[0])
		s.consoles = []*Console{c}
		s.mux.Handle("/", c)
		return s
	}
	for i, cfg := range cfgs {
		cfg.Base = "/" + strconv.Itoa(i+1)
		for k := range cfgs {
			cfg.servers = append(cfg.servers, serverLink{cfgs[k].Server, "/" + strconv.Itoa(k+1) + "/", k == i})
		}
		c := New(cfg)
		s.consoles = append(s.consoles, c)
		s.mux.Handle(cfg.Base+"/", c)
	}
	s.mux.Handle("GET /{$}", http.RedirectHandler("/1/", http.StatusSeeOther))
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
