package cluster

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/replica"
	"trellis/engine"
	"trellis/reactor"
)

// clients are those of a queue: a server and its listeners. They end with a leadership, but for one that
// is settled: then they wait for the next one. Those that are forwarded end when this node leads.
type clients struct {
	queue   *Queue
	server  *reactor.Server
	self    *gateway        // what it says of itself to leaders
	ctx     context.Context // ends with them
	cancel  context.CancelFunc
	working sync.WaitGroup // listen, and what accepts
	leads   bool           // otherwise they are forwarded
	addrs   []net.Addr     // guarded by queue.mu
}

// reset ends all connections without a word. When it returns nothing executes. Of nil it does nothing.
func (s *clients) reset() {
	if s == nil {
		return
	}
	s.cancel()
	s.server.Abort()
	s.working.Wait()
}

// service is what a queue has for the time of one leadership.
type service struct {
	*clients
	leadership *replica.Leadership
	now        func() engine.Time
	ended      context.Context
	end        context.CancelFunc
	absences   *absences
	guarding   sync.WaitGroup
}

const (
	// listenPause is between two attempts to open the clients' sockets.
	listenPause = 200 * time.Millisecond
	// listenTimeout is how long that is tried before leadership is handed over.
	listenTimeout = 3 * time.Second
)

const (
	// currentPause is between two looks at what is committed.
	currentPause = time.Millisecond
	// currentTimeout is how long a reader waits for that.
	currentTimeout = time.Second
)

// current implements Serving.Current.
func (s *service) current() bool {
	ctx, cancel := context.WithTimeout(s.ended, currentTimeout)
	defer cancel()
	return s.await(ctx, s.leadership.Barrier())
}

// await waits until a position is committed. It returns false if ctx ends before.
func (s *service) await(ctx context.Context, pos journal.Pos) bool {
	s.leadership.Flush()
	for s.leadership.Committed() < pos {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(currentPause):
		}
	}
	return true
}

// listen opens the clients' sockets and has the server accept on them. It tries until it
// can, or, if this one leads, until another member that can leads.
func (s *clients) listen() {
	q := s.queue
	for tries := 0; ; tries++ {
		plain, tls, err := q.cfg.Listen()
		if err == nil {
			s.accept(plain, tls)
			return
		}
		if tries == 0 {
			q.cfg.Log.Error("clients cannot be served yet; trying again", "error", err)
		}
		if s.leads && tries > 0 && tries%int(listenTimeout/listenPause) == 0 {
			q.cfg.Log.Error("clients cannot be served; handing over to another member", "error", err)
			s.giveUp()
		}
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(listenPause):
		}
	}
}

// giveUp has another member lead, if one can.
func (s *clients) giveUp() {
	if err := s.queue.handOver(s.ctx); err != nil && s.ctx.Err() == nil {
		s.queue.cfg.Log.Warn("no other member has taken over", "error", err)
	}
}

// accept serves the listeners.
func (s *clients) accept(plain, tls []net.Listener) {
	q := s.queue
	var addrs []net.Addr
	serve := func(l net.Listener, secure bool, serve func() error) {
		addrs = append(addrs, l.Addr())
		log := q.cfg.Log
		if secure {
			log = log.With("tls", true)
		}
		log.Info("listening", "network", l.Addr().Network(), "addr", l.Addr().String())
		s.working.Go(func() {
			// A server that has ended closes the listener and says so.
			if err := serve(); err != nil && !errors.Is(err, reactor.ErrClosed) && s.ctx.Err() == nil {
				q.fail(err)
			}
		})
	}
	for _, l := range plain {
		serve(l, false, func() error { return s.server.Serve(l) })
	}
	for _, l := range tls {
		serve(l, true, func() error { return s.server.ServeTLS(l, q.cfg.TLS) })
	}
	q.mu.Lock()
	s.addrs = addrs
	q.mu.Unlock()
	q.changed()
	if s.leads {
		q.cfg.Log.Info("ready")
	} else {
		q.cfg.Log.Info("ready to forward clients to the leader")
	}
}
