package reactor

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// bell makes a loop take its mail and go on serving after its next poll. It is a descriptor
// that gnet takes for a connection: what is written to it is input, and nothing but a poll
// can find it there. (A task for gnet's own queue would not do: gnet runs that queue
// until it is empty, so that a task which is posted while it runs comes before the
// next poll.) A ring costs one short write and one short read, and no allocation. A
// loop that polls by itself is only written to while it sleeps.
//
// It is also the context of that connection.
type bell struct {
	loop    *loop // set before anybody rings
	fd      int   // where it is rung; closed with the server unless it is heardAt
	heardAt int   // the descriptor that gnet reads, and closes

	// Of the loop's goroutine.
	opened bool   // gnet has it
	round  uint32 // in which gnet last reported it

	rung  atomic.Bool // it was rung, and the loop has not heard it yet
	awake atomic.Bool // the loop looks at rung before it sleeps, so that nothing need be written

	gate sync.RWMutex
	shut bool // fd is not written to any more; guarded by gate
}

// ringing is what is written: to an eventfd, a number in any byte order.
var ringing = [8]byte{0: 1, 7: 1}

// ring asks for a call of loop.answerBell, which never comes once the bell is silent. Any
// goroutine may call it; it does not block.
func (b *bell) ring() {
	if b.rung.Load() || b.rung.Swap(true) {
		return
	}
	b.gate.RLock()
	defer b.gate.RUnlock()
	if !b.shut && !b.awake.Load() {
		b.write()
	}
}

// write makes the loop's poller report the bell.
func (b *bell) write() {
	for {
		_, err := unix.Write(b.fd, ringing[:])
		switch err {
		case nil, unix.EAGAIN: // full: then there is something to read
			return
		case unix.EINTR:
		default:
			// Sessions might sleep for ever.
			b.loop.server.die("an event loop cannot be woken", "error", err)
			return
		}
	}
}

// wake says that the loop looks at rung before it sleeps.
func (b *bell) wake() { b.awake.Store(true) }

// sleep says that the loop is about to sleep. It reports false when the bell has been
// rung before; who rings later writes.
func (b *bell) sleep() bool {
	b.awake.Store(false)
	return !b.rung.Load()
}

// clear reads what was written.
func (b *bell) clear() {
	var p [8]byte
	_, _ = unix.Read(b.heardAt, p[:])
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

// close frees what gnet does not. The bell must be silent.
func (b *bell) close() {
	if b.fd != b.heardAt {
		_ = unix.Close(b.fd)
	}
}
