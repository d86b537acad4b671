package binlog

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// bell wakes the one goroutine that waits for it in a system call: the committer. It may be
// rung before hang and after close.
//
// A commit that begins with a send on a channel takes some 50 µs longer. The runtime
// answers the send by waking an idle thread, which is to take the receiver from the
// sender's queue. Before it does, it sleeps for 3 µs, to let the sender run it instead,
// and Linux makes that 50 or more. A thread that waits in a system call runs as soon as
// the system has a processor for it.
type bell struct {
	state atomic.Int32
	pipe  [2]int // the end that is read, and the one that is written to
	open  bool   // pipe is open; only Start and Close touch it
}

// The states of a bell.
const (
	awake  = iota // nobody waits, and it was not rung
	asleep        // somebody waits: who rings, writes
	rung          // it was rung, and the next wait returns at once
)

// hang makes the bell ready to be waited for.
func (b *bell) hang() error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := unix.Pipe(b.pipe[:]); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	unix.CloseOnExec(b.pipe[0])
	unix.CloseOnExec(b.pipe[1])
	b.open = true
	return nil
}

// close frees what hang has taken. Nobody waits any more; rings are in vain.
func (b *bell) close() {
	if b.open {
		b.open = false
		_ = unix.Close(b.pipe[0])
		_ = unix.Close(b.pipe[1])
	}
}

// ring makes the wait that is under way, or else the next one, return. Any goroutine may
// call it. It does not block.
func (b *bell) ring() {
	if b.state.Swap(rung) != asleep {
		return
	}
	for p := [1]byte{}; ; {
		switch _, err := unix.Write(b.pipe[1], p[:]); err {
		case nil:
			return
		case unix.EINTR:
		default:
			panic(fmt.Sprintf("binlog: write to the committer's pipe: %v", err))
		}
	}
}

// wait returns when the bell has been rung since the last wait returned.
func (b *bell) wait() {
	if b.state.CompareAndSwap(awake, asleep) {
		b.read()
	}
	b.state.Swap(awake) // unlike Store, it comes after what was done before each ring
}

func (b *bell) read() {
	for p := [1]byte{}; ; {
		switch _, err := unix.Read(b.pipe[0], p[:]); err {
		case nil:
			return
		case unix.EINTR:
		default:
			panic(fmt.Sprintf("binlog: read from the committer's pipe: %v", err))
		}
	}
}
