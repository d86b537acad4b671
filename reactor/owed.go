package reactor

import (
	"container/heap"
	"errors"
	"time"
)

// owed are a loop's connections whose clients have to take output before they can go on, a heap with
// the one that is owed most first. It is kept only with Config.MaxOutputTotal, and belongs to the
// loop's goroutine. What waits for a commit is not the client's fault, and no reason to be in it.
type owed []*conn

var errTooMuchTotal = errors.New("all clients together are owed more replies than may be kept, and it is owed most")

// noteOwed is called behind everything that may change what the client is owed. If it is more than
// before, and all together are owed too much, the one that is owed most is to be closed.
func (c *conn) noteOwed() {
	l, x, n := c.loop, c.x, 0
	if c.stalled {
		n = x.out.len()
	}
	before := x.owed
	if n == before {
		return
	}
	switch x.owed = n; {
	case before == 0:
		heap.Push(&l.owed, c)
	case n == 0:
		heap.Remove(&l.owed, int(x.owedAt))
	default:
		heap.Fix(&l.owed, int(x.owedAt))
	}
	l.publishOwed()
	if n > before {
		l.server.relieve()
	}
}

// forgetOwed is for a connection that ends.
func (c *conn) forgetOwed() {
	if x := c.x; x != nil && x.owed > 0 {
		heap.Remove(&c.loop.owed, int(x.owedAt))
		x.owed = 0
		c.loop.publishOwed()
	}
}

// publishOwed tells all loops what the first of this one is owed.
func (l *loop) publishOwed() {
	most := 0
	if len(l.owed) > 0 {
		most = l.owed[0].x.owed
	}
	l.mostOwed.Store(int64(most))
}

// relieve has the loop whose client is owed most close that, if all together are owed too much.
// Any loop may call it.
func (s *Server) relieve() {
	if s.pendingOutput() <= s.cfg.MaxOutputTotal {
		return
	}
	var at *loop
	most := int64(0)
	for _, l := range s.loops {
		if n := l.mostOwed.Load(); n > most {
			at, most = l, n
		}
	}
	if at != nil && !at.relief.Swap(true) {
		at.gnet.Wake()
	}
}

// pendingOutput is how many bytes all clients together are owed.
func (s *Server) pendingOutput() (bytes int64) {
	for _, l := range s.loops {
		bytes += l.counts.pendingOutput.Load()
	}
	return bytes
}

// closeLargest closes the connection that is owed most, because somebody has found that all
// together are owed too much, and looks whether that was enough.
func (l *loop) closeLargest(now time.Duration) {
	l.relief.Store(false)
	s := l.server
	if len(l.owed) == 0 || s.pendingOutput() <= s.cfg.MaxOutputTotal {
		return
	}
	c := l.owed[0]
	l.counts.overTotal.Add(1)
	if n, ok := s.closes.Allow(); ok {
		s.log.Warn("a client's connection is closed", "error", errTooMuchTotal, "peer", c.endpoint().String(),
			"bytes", c.x.owed, "limit", s.cfg.MaxOutputTotal, "unreported", n)
	}
	c.fail()
	c.end(now)
	s.relieve()
}

// The rest is for package heap.

func (h owed) Len() int           { return len(h) }
func (h owed) Less(i, j int) bool { return h[i].x.owed > h[j].x.owed }

func (h owed) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].x.owedAt, h[j].x.owedAt = int32(i), int32(j)
}

func (h *owed) Push(c any) {
	c.(*conn).x.owedAt = int32(len(*h))
	*h = append(*h, c.(*conn))
}

func (h *owed) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return c
}
