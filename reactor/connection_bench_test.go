//go:build linux

package reactor

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkConnection is a connection from its beginning to its end. The client is bare
// system calls, so that what is allocated is the server's.
func BenchmarkConnection(b *testing.B) {
	for _, x := range []struct {
		name     string
		commands []string
		replies  string
	}{
		{"one command", []string{"list-tube-used\r\n"}, "USING default\r\n"},
		{"a job", []string{"use a\r\n", "watch a\r\n", "ignore default\r\n", "put 0 0 60 1\r\nx\r\n", "reserve\r\n", "delete %d\r\n"}, "DELETED\r\n"},
	} {
		b.Run(x.name, func(b *testing.B) {
			ts := serve(b, "tcp", 1, hooks{})
			addr := ts.addr.(*net.TCPAddr)
			to := &unix.SockaddrInet4{Port: addr.Port, Addr: [4]byte(addr.IP.To4())}
			buf := make([]byte, 256)
			id := 0
			b.ReportAllocs()
			for b.Loop() {
				id++
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
				if err != nil {
					b.Fatal(err)
				}
				if err := unix.Connect(fd, to); err != nil {
					b.Fatal(err)
				}
				n := 0
				for _, cmd := range x.commands {
					if strings.Contains(cmd, "%") {
						cmd = fmt.Sprintf(cmd, id)
					}
					if _, err := unix.Write(fd, []byte(cmd)); err != nil {
						b.Fatal(err)
					}
					if n, err = unix.Read(fd, buf); err != nil {
						b.Fatal(err)
					}
				}
				if string(buf[:n]) != x.replies {
					b.Fatalf("%q", buf[:n])
				}
				unix.Close(fd)
			}
		})
	}
}
