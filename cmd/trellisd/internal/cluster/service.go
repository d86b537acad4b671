package cluster

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/replica"
	"trellis/engine"
	"trellis/reactor"
)

// clients are those of a queue: a server and its listeners. They live as long as it is known what has become of
// their commands: while this node forwards them, when it leads, and when it has handed over. Those of a leadership that
// ends otherwise end with it.
type clients struct {
	queue   *Queue
	server  *reactor.Server
	self    *gateway        // what it says of itself to leaders
	ctx     context.Context // ends with them
	cancel  context.CancelFunc
	working sync.WaitGroup // listen, and what accepts
	leads   atomic.Bool    // otherwise they are forwarded, or wait

	// Guarded by queue.mu.
	addrs  []net.Addr
	opens  bool // listen goes on, or some of what it began does
	serves int  // listeners that are served
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
	numbered   atomic.Bool // the loops have their numbers
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

// about is a pause, or up to a quarter more: those who have begun to wait together do not look together.
func about(pause time.Duration) time.Duration {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return pause + time.Duration(uint64(pause)*uint64(binary.LittleEndian.Uint32(b[:]))>>34)
}

// await waits until a position is committed. It returns false if ctx ends before.
func (s *service) await(ctx context.Context, pos journal.Pos) bool {
	s.leadership.Flush()
	for s.leadership.Committed() < pos {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(about(currentPause)):
		}
	}
	return true
}

// open opens the clients' port, unless it is open.
func (s *clients) open() {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if !s.opens && s.ctx.Err() == nil {
		s.opens = true
		s.working.Go(s.listen)
	}
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
		if s.leads.Load() && tries > 0 && tries%int(listenTimeout/listenPause) == 0 {
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

// giveUp transfers leadership to another member, if one can lead.
func (s *clients) giveUp() {
	if err := s.queue.handOver(s.ctx); err != nil && s.ctx.Err() == nil {
		s.queue.cfg.Log.Warn("no other member has taken over", "error", err)
	}
}

// accept serves the listeners.
func (s *clients) accept(plain, tls []net.Listener) {
	q := s.queue
	q.mu.Lock()
	s.addrs, s.serves = nil, len(plain)+len(tls)
	for _, l := range slices.Concat(plain, tls) {
		s.addrs = append(s.addrs, l.Addr())
	}
	q.mu.Unlock()
	serve := func(l net.Listener, secure bool, serve func() error) {
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
			s.served()
		})
	}
	for _, l := range plain {
		serve(l, false, func() error { return s.server.Serve(l) })
	}
	for _, l := range tls {
		serve(l, true, func() error { return s.server.ServeTLS(l, q.cfg.TLS) })
	}
	q.changed()
	if s.leads.Load() {
		q.cfg.Log.Info("ready")
	} else {
		q.cfg.Log.Info("ready to forward clients to the leader")
	}
}

// served notes that a listener is not served any more. The last one may have been closed for want of a leader just
// before this node became that.
func (s *clients) served() {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.serves--; s.serves > 0 {
		return
	}
	s.opens, s.addrs = s.leads.Load() && s.ctx.Err() == nil, nil
	if s.opens {
		s.working.Go(s.listen)
	}
}

// port closes the clients' port when the server has given up: nobody is forwarded, and clients do well to try another
// member. It opens it again when a loop is attached.
func (s *clients) port() {
	switch loops, without := s.server.Forwarding(); {
	case loops > 0:
		s.open()
	case without >= reactor.LeaderPatience:
		s.server.Unserve()
	}
}
