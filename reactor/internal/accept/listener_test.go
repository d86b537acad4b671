package accept

import (
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// keepAliveNames are the options of a TCP socket that say how it is kept alive.
var keepAliveNames = []int{keepIdle, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT}

func TestAcceptedSocketsHaveTheirListenersTimings(t *testing.T) {
	t.Parallel()
	timings := []int{77, 33, 5}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			for i, name := range keepAliveNames {
				if err := unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, name, timings[i]); err != nil {
					t.Error(err)
				}
			}
		})
	}}
	lc.KeepAlive = -1 // package net would set timings of its own on the listener
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const set = -1 // any number but 0
	want := append([]int{set, set}, timings...)
	got := make(chan []int, 1)
	ts := serve(t, hooks{}, nil)
	ts.admit = func(fd int) {
		var values []int
		for i, o := range []option{
			{level: unix.IPPROTO_TCP, name: unix.TCP_NODELAY},
			{level: unix.SOL_SOCKET, name: unix.SO_KEEPALIVE},
			{level: unix.IPPROTO_TCP, name: keepAliveNames[0]},
			{level: unix.IPPROTO_TCP, name: keepAliveNames[1]},
			{level: unix.IPPROTO_TCP, name: keepAliveNames[2]},
		} {
			n, err := unix.GetsockoptInt(fd, o.level, o.name)
			if err != nil {
				t.Error(err)
			}
			if want[i] == set && n != 0 {
				n = set
			}
			values = append(values, n)
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK == 0 {
			t.Errorf("an accepted socket blocks: flags %#x, %v", flags, err)
		}
		if flags, err = unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("an accepted socket is inherited: flags %#x, %v", flags, err)
		}
		got <- values
	}
	early := dial(t, l.Addr()) // before the server has set anything
	ts.listenOn(l, nil, nil)
	for _, c := range []*client{early, dial(t, l.Addr())} {
		c.do("use a\r\n", "USING a\r\n")
		if got := <-got; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("TCP_NODELAY, SO_KEEPALIVE and timings are %v, want %v", got, want)
		}
	}
}

func TestAcceptingGoesOnAsSoonAsAConnectionIsClosed(t *testing.T) {
	t.Parallel()
	var short atomic.Bool
	ts := serve(t, hooks{pause: time.Hour, accept: func() error {
		if short.Load() {
			return unix.EMFILE
		}
		return nil
	}}, nil)
	c := ts.dial()
	for i := range uint64(3) {
		c.do("use a\r\n", "USING a\r\n")
		short.Store(true)
		next := ts.dial()
		ts.until("accepting has paused", func() bool { return ts.Stats().AcceptPaused == 1 })
		if st := ts.Stats(); st.AcceptFailures != i+1 || st.AcceptPauses != i+1 || st.Accepted != i+1 {
			t.Errorf("%+v", st)
		}
		short.Store(false)
		c.Close()
		next.do("use b\r\n", "USING b\r\n")
		c = next
	}
}
