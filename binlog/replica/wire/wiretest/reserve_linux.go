package wiretest

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// ReservedAddr is an address of 127.0.0.1 with a port that nobody who chooses a port gets
// before the end of the test, and that is left to a listener: a socket is bound to it, and
// one that does not listen keeps nobody from listening.
func ReservedAddr(t testing.TB) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		t.Fatal(err)
	}
	a, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", a.(*unix.SockaddrInet4).Port)
}
