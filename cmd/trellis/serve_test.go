package main

import (
	"net"
	"testing"
)

// listen listens at a port that nobody else has.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serveEach serves every connection of a listener on its own, and closes it then, until the end of the test. It returns the
// listener's address.
func serveEach(t *testing.T, l net.Listener, serve func(net.Conn)) (addr string) {
	t.Helper()
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}
