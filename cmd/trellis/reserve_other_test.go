//go:build !linux

package main

import (
	"net"
	"testing"
)

// reservedAddr is an address of which the port is free now. Others may get it, because a
// socket that is bound would keep everybody from it here.
func reservedAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
