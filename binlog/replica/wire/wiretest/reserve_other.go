//go:build !linux

package wiretest

import (
	"net"
	"testing"
)

// ReservedAddr is an address of 127.0.0.1 with a port that is free now. Others may get it,
// because a socket that is bound would keep everybody from it here.
func ReservedAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
