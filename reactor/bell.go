package reactor

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// bell makes a loop serve its run queue after its next poll. It is a connection
// of the loop's from the server to itself: a byte that is written at one end is
// input at the other, and nothing but a poll can find it there. (A task for gnet's
// own queue would not do: gnet runs that queue until it is empty, so that a task
// which is posted while it runs comes before the next poll.) A ring costs one
// short write and one short read, and no allocation.
//
// It is also the context of that connection.
type bell struct {
	loop *loop // set before anybody rings
	fd   int   // the end that is written to

	rung atomic.Bool // a byte is on its way, or the loop has not seen it yet

	gate sync.RWMutex
	shut bool // fd is not written to any more; guarded by gate
}

var ringByte = [1]byte{1}

// ring asks for a call of loop.polled. It reports false when the loop has ended.
// Any goroutine may call it; it does not block.
func (b *bell) ring() bool {
	if b.rung.Load() || b.rung.Swap(true) {
		return true
	}
	b.gate.RLock()
	defer b.gate.RUnlock()
	if b.shut {
		return false
	}
	for {
		_, err := writeFD(b.fd, ringByte[:])
		switch err {
		case nil, unix.EAGAIN: // full: then there is something to read
			return true
		case unix.EINTR:
		default:
			// Sessions might sleep for ever.
			b.loop.server.die("an event loop cannot be woken", "error", err)
			return false
		}
	}
}

// heard makes the next ring count. The loop calls it before it looks at what
// others have left for it.
func (b *bell) heard() { b.rung.Swap(false) }

// silence makes ring do nothing from now on. Any goroutine may call it.
func (b *bell) silence() {
	b.gate.Lock()
	b.shut = true
	b.gate.Unlock()
}
