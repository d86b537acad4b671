//go:build proof

package process

import (
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trellis/cmd/trellisd/internal/servertest"
)

// vanish makes a client's host seem to have lost its power: the system drops whatever comes for it, and answers nothing.
func vanish(t *testing.T, c *servertest.Client) {
	t.Helper()
	raw, err := c.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	nothing := []unix.SockFilter{{Code: unix.BPF_RET}}
	err = errorOf(raw, func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func errorOf(raw syscall.RawConn, f func(fd int) error) (err error) {
	if closed := raw.Control(func(fd uintptr) { err = f(int(fd)) }); closed != nil {
		return closed
	}
	return err
}

// What a worker had, whose host has vanished, and what it is handed afterwards, is at work elsewhere long before a time
// to run ends.
func TestJobsOfAHostThatHasVanishedAreDoneElsewhere(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, "--keepalive=2s")
	holds, waits := s.Dial(0), s.Dial(0)
	producer := s.Dial(0)
	producer.Send("put 0 0 4000 1", "a")
	producer.Want("INSERTED 1")
	holds.Send("reserve")
	holds.Want("RESERVED 1 1", "a")
	waits.Send("reserve")
	for end := time.Now().Add(servertest.Patience); servertest.Stats(producer)["current-waiting"] != "1"; {
		if time.Now().After(end) {
			t.Fatal("the worker does not wait")
		}
	}
	vanish(t, holds)
	vanish(t, waits)
	producer.Send("put 1 0 4000 1", "b")
	producer.Want("INSERTED 2")
	if got := servertest.Stats(producer)["current-jobs-reserved"]; got != "2" {
		t.Errorf("%s jobs are reserved", got)
	}
	other := s.Dial(0)
	other.Send("reserve", "reserve")
	got := map[string]bool{}
	for range 2 {
		got[other.Line()] = true
		other.Line()
	}
	if !got["RESERVED 1 1"] || !got["RESERVED 2 1"] {
		t.Errorf("the other worker got %v", got)
	}
}
