package listen

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestConnectionsOfAnInheritedSocketKeepItsTimings(t *testing.T) {
	set := func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			for option, value := range map[int]int{tcpKeepIdle: 77, unix.TCP_KEEPINTVL: 33, unix.TCP_KEEPCNT: 5} {
				if err := unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, option, value); err != nil {
					t.Error(err)
				}
			}
		})
	}
	theirs, err := (&net.ListenConfig{Control: set}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	f, err := theirs.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	l, err := fromFile(f)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	want := net.KeepAliveConfig{Enable: true, Idle: 77 * time.Second, Interval: 33 * time.Second, Count: 5}
	if got, err := keepAliveOf(accepted.(*net.TCPConn)); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}
