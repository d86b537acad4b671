//go:build linux && !poll_opt

package reactor

import (
	"testing"

	"golang.org/x/sys/unix"
)

// written tells whether the bell's descriptor has something to be read, and reads it.
func (b *bell) written() bool {
	var p [8]byte
	n, _ := unix.Read(b.heardAt, p[:])
	return n > 0
}

func TestABellIsWrittenToOnlyWhileItsLoopSleeps(t *testing.T) {
	t.Parallel()
	b, err := newBell()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(b.fd)
	b.wake()
	b.ring()
	if b.written() {
		t.Error("the bell of a loop that is awake was written to")
	}
	if b.sleep() {
		t.Error("the loop goes to sleep although its bell was rung")
	}
	b.wake()
	b.heard()
	if !b.sleep() {
		t.Error("the loop does not go to sleep although its bell was not rung")
	}
	b.ring()
	if !b.written() {
		t.Error("the bell of a loop that sleeps was not written to")
	}
}

func TestLoopsPollByThemselves(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 2, hooks{})
	ts.onLoops(func(l *loop) {
		if !l.polling.on {
			t.Error("gnet polls")
		}
	})
}

// What gnet has to do is done, and whoever polls then goes on with everybody.
func TestATaskOfGnetsEndsTheLoopsOwnPolling(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 1, hooks{})
	l := ts.loops[0]
	before, worker := ts.dial(), ts.dial()
	before.do("use a\r\n", "USING a\r\n")
	worker.send("watch a\r\nreserve\r\n")
	worker.expect("WATCHING 2\r\n")
	var polls bool
	if err := l.runTask(func() { polls = l.polling.on }); err != nil {
		t.Fatal(err)
	}
	if polls {
		t.Error("the loop has not left its own polling")
	}
	before.do("put 0 0 60 1\r\nx\r\n", "INSERTED 1\r\n")
	worker.expect(reserved(1, "x"))
	after := ts.dial()
	after.do("use b\r\n", "USING b\r\n")
	// A connection that the server closes itself.
	after.send("quit\r\n")
	after.expectEOF()
}
