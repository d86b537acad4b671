package gnetloop

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestALoopThatIsAwakeIsNotInterrupted(t *testing.T) {
	t.Parallel()
	fds := pair(t)
	defer unix.Close(fds[1])
	written := func() bool {
		n, _ := unix.Read(fds[1], make([]byte, 8))
		return n > 0
	}
	l := &Loop{poller: poller{wakeFD: fds[0]}, waker: waker{open: true}}
	l.waker.awake.Store(true)
	l.Wake()
	if written() {
		t.Error("a loop that is awake was interrupted")
	}
	if l.waker.mayRest() {
		t.Error("it goes to sleep although it was woken")
	}
	l.waker.woken.Store(false)
	if !l.waker.mayRest() {
		t.Error("it does not go to sleep although it was not woken")
	}
	l.Wake()
	l.Wake()
	if !written() || written() {
		t.Error("a loop that sleeps was not interrupted, or more than once")
	}
	l.waker.woken.Store(false)
	l.waker.close()
	l.Wake()
	if written() {
		t.Error("a loop that has ended was interrupted")
	}
}
