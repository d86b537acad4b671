package clustertest

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// A Door forwards connections to a process, so that its address is known before the process listens.
type Door struct {
	l      net.Listener
	target atomic.Pointer[string] // where the process listens; "" or nil if it does not
}

func newDoor(t testing.TB) *Door { return NewDoorOn(t, "127.0.0.1") }

// NewDoorOn makes a door with a free port of a host. It is closed at the end of the test.
func NewDoorOn(t testing.TB, host string) *Door {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	d := &Door{l: l}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { d.pass(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return d
}

// Addr is HOST:PORT.
func (d *Door) Addr() string { return d.l.Addr().String() }

// Lead forwards connections that come from now on to an address; "" closes them.
func (d *Door) Lead(addr string) { d.target.Store(&addr) }

// pass forwards a connection until one side ends.
func (d *Door) pass(c net.Conn) {
	defer c.Close()
	target := d.target.Load()
	if target == nil || *target == "" {
		return
	}
	there, err := net.Dial("tcp", *target)
	if err != nil {
		return
	}
	defer there.Close()
	var both sync.WaitGroup
	copyTo := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.Close()
		_ = from.Close()
	}
	both.Go(func() { copyTo(there, c) })
	both.Go(func() { copyTo(c, there) })
	both.Wait()
}
