package replica

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// maxInbox bounds the bytes of peers' messages that wait for the raft goroutine. What
// comes beyond is discarded, as a network discards it.
const maxInbox = 64 << 20

// messageOverhead is about what a message takes beside its context and the data of its
// entries.
const messageOverhead = 256

// inbox is what waits for the raft goroutine. Any goroutine may add to it; it never
// blocks.
type inbox struct {
	waker

	mu    sync.Mutex
	peers []*raftpb.Message // may be discarded
	size  int64             // bytes of peers
	local []*raftpb.Message // of writer and applier; in order, and none is ever discarded
	calls []func()          // to be run by the raft goroutine, in order
}

func newInbox() *inbox { return &inbox{waker: newWaker()} }

// waker wakes a goroutine that receives from it: it holds one token when something waits.
type waker chan struct{}

func newWaker() waker { return make(waker, 1) }

// wake never blocks.
func (w waker) wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// peer adds a message of another node if there is room.
func (b *inbox) peer(m *raftpb.Message) {
	size := messageOverhead + int64(len(m.GetContext())) + payload(m)
	b.mu.Lock()
	if b.size+size <= maxInbox || len(b.peers) == 0 {
		b.peers = append(b.peers, m)
		b.size += size
	}
	b.mu.Unlock()
	b.wake()
}

// respond adds responses of writer or applier.
func (b *inbox) respond(ms ...*raftpb.Message) {
	b.respondLater(ms...)
	b.wake()
}

// respondLater adds responses for the raft goroutine to find when it looks next, after a tick at
// the latest.
func (b *inbox) respondLater(ms ...*raftpb.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.local = append(b.local, ms...)
}

// call passes f to the raft goroutine, which runs it. Calls run after the responses that came before.
func (b *inbox) call(f func()) {
	b.mu.Lock()
	b.calls = append(b.calls, f)
	b.mu.Unlock()
	b.wake()
}

// take empties the inbox.
func (b *inbox) take() (local, peers []*raftpb.Message, calls []func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	local, peers, calls = b.local, b.peers, b.calls
	b.local, b.peers, b.calls, b.size = nil, nil, nil, 0
	return local, peers, calls
}
