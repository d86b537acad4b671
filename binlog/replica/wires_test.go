package replica

import (
	"context"
	"errors"
	"io"
	"maps"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire"
)

// wires knows what is on its way over the real connections of a cluster, so that time waits for
// that too: a machine may take long to bring what others wait for no longer than some ticks.
type wires struct {
	cluster *cluster
	mu      sync.Mutex
	away    map[link]int // messages
}

// maxAway is how long time waits for messages, some of which may be lost.
const maxAway = 500 * time.Millisecond

// count takes a message that was sent, or that has arrived. Entries may take long on a slow link.
func (w *wires) count(m *raftpb.Message, n int) {
	if w.cluster.rate > 0 && len(m.GetEntries()) > 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l := link{member.ID(m.GetFrom()), member.ID(m.GetTo())}
	w.away[l] = max(w.away[l]+n, 0)
}

// lose forgets what is on its way to a node or from it.
func (w *wires) lose(id member.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.away, func(l link, _ int) bool { return l.from == id || l.to == id })
}

// pass waits until nothing is on its way. What has not come by then never does.
func (w *wires) pass() {
	if w == nil {
		return
	}
	quiet := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, n := range w.away {
			if n > 0 {
				return false
			}
		}
		return true
	}
	for began := time.Now(); !quiet(); time.Sleep(100 * time.Microsecond) {
		if time.Since(began) > maxAway {
			w.mu.Lock()
			clear(w.away)
			w.mu.Unlock()
		}
	}
}

// wiredPort is a node's side of real connections.
type wiredPort struct {
	*wire.Transport
	wires *wires
}

func (t *wiredPort) Send(m *raftpb.Message) {
	t.wires.count(m, 1)
	t.Transport.Send(m)
}

// handler is the other side: a node that answers no control requests and takes no trunks.
type handler struct {
	*Node
	wires *wires
}

func (h handler) Message(m *raftpb.Message) {
	h.Node.Message(m)
	h.wires.count(m, -1)
}

func (h handler) Unreachable(id member.ID) {
	h.wires.lose(id)
	h.Node.Unreachable(id)
}

// Control implements wire.Handler.
func (handler) Control(context.Context, wire.Caller, []byte, io.Writer) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// Trunk implements wire.Handler.
func (handler) Trunk(context.Context, member.Member, wire.TrunkHello) (func(*wire.Trunk), error) {
	return nil, errors.ErrUnsupported
}
