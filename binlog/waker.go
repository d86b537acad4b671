package binlog

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// waker wakes the one goroutine that waits in a system call, the committer. wake may be called
// before open and after close.
//
// A commit that begins with a send on a channel takes some 50 µs longer. The runtime
// answers the send by waking an idle thread, which is to take the receiver from the
// sender's queue. Before it does, it sleeps for 3 µs, to let the sender run it instead,
// and Linux makes that 50 or more. A thread that waits in a system call runs as soon as
// the system has a processor for it.
type waker struct {
	state  atomic.Int32
	pipe   [2]int // the end that is read, and the one that is written to
	opened bool   // pipe is open; only Start and Close touch it
}

// The states of a waker.
const (
	awake  = iota // nobody waits, and there was no wake
	asleep        // somebody waits: wake writes
	woken         // the next wait returns at once
)

// open makes the waker ready for wait.
func (w *waker) open() error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := unix.Pipe(w.pipe[:]); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	unix.CloseOnExec(w.pipe[0])
	unix.CloseOnExec(w.pipe[1])
	w.opened = true
	return nil
}

// close frees what open has taken. Nobody waits any more.
func (w *waker) close() {
	if w.opened {
		w.opened = false
		_ = unix.Close(w.pipe[0])
		_ = unix.Close(w.pipe[1])
	}
}

// wake makes the wait that is under way, or else the next one, return. Any goroutine may
// call it. It does not block.
func (w *waker) wake() {
	if w.state.Swap(woken) != asleep {
		return
	}
	for p := [1]byte{}; ; {
		switch _, err := unix.Write(w.pipe[1], p[:]); err {
		case nil:
			return
		case unix.EINTR:
		default:
			panic(fmt.Sprintf("binlog: write to the committer's pipe: %v", err))
		}
	}
}

// wait returns when wake was called since the last wait returned.
func (w *waker) wait() {
	if w.state.CompareAndSwap(awake, asleep) {
		w.read()
	}
	w.state.Swap(awake) // unlike Store, it comes after what was done before each wake
}

func (w *waker) read() {
	for p := [1]byte{}; ; {
		switch _, err := unix.Read(w.pipe[0], p[:]); err {
		case nil:
			return
		case unix.EINTR:
		default:
			panic(fmt.Sprintf("binlog: read from the committer's pipe: %v", err))
		}
	}
}
