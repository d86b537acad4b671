package listen

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"

	"trellis/reactor"
)

// The names of inherited sockets, FileDescriptorName= in the socket unit: tlsName where clients speak TLS,
// proxyName where they come by proxies that say so, and both, as tls-proxy.
const (
	tlsName   = "tls"
	proxyName = "proxy"
)

// Inherited returns all sockets that systemd passed to this process, in its order,
// those for TLS apart; none if this process was not activated. It takes the
// activation's variables out of the environment, so a second call finds none.
// An environment that is wrong, and a descriptor that is no listening stream
// socket of TCP or UNIX, are errors.
//
// The options of inherited sockets are left as they are; they are the unit
// file's affair. Only of keep-alive's timings the server has its own.
func Inherited() (plain, tls []net.Listener, err error) {
	if active, err := activated(); !active || err != nil {
		return nil, nil, err
	}
	files := activation.Files(true)
	// All are checked before the first is opened: opening makes descriptors, and
	// the number of one that was announced but not passed would then be ours.
	for i, f := range files {
		if err := check(f); err != nil {
			return nil, nil, notListening(i, err)
		}
	}
	for i, f := range files {
		name, proxied := strings.CutSuffix(f.Name(), "-"+proxyName)
		if name == proxyName {
			name, proxied = "", true
		}
		l, err := fromFile(f)
		if err != nil {
			return nil, nil, notListening(i, err)
		}
		if proxied {
			l = reactor.Proxied{Listener: l}
		}
		if name == tlsName {
			tls = append(tls, l)
		} else {
			plain = append(plain, l)
		}
	}
	return plain, tls, nil
}

func notListening(i int, err error) error {
	return fmt.Errorf("inherited fd %d is not a TCP or UNIX listening socket (%w); see ListenStream= in the socket unit",
		firstFD+i, err)
}

// firstFD is the first descriptor that is passed, SD_LISTEN_FDS_START in systemd.
const firstFD = 3

// activated checks the environment as sd_listen_fds(3) does. The Go library
// takes every mistake in it for no activation at all, and the server would
// then open sockets that nobody asked for.
func activated() (bool, error) {
	pid, ok := os.LookupEnv("LISTEN_PID")
	if !ok {
		return false, nil
	}
	switch n, err := strconv.ParseInt(pid, 10, 32); {
	case err != nil || n <= 0:
		return false, badEnvironment("LISTEN_PID", pid)
	case int(n) != os.Getpid():
		return false, nil // meant for another process, such as our parent
	}
	fds, ok := os.LookupEnv("LISTEN_FDS")
	if !ok {
		return false, nil
	}
	if n, err := strconv.ParseInt(fds, 10, 16); err != nil || n <= 0 {
		return false, badEnvironment("LISTEN_FDS", fds)
	}
	return true, nil
}

func badEnvironment(name, value string) error {
	return fmt.Errorf("bad socket activation: %s=%s; unset it, or let systemd set it", name, value)
}

func check(f *os.File) error {
	fd := int(f.Fd())
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return err
	}
	if kind != unix.SOCK_STREAM {
		return fmt.Errorf("socket type %d", kind)
	}
	listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return err
	}
	if listening == 0 {
		return errors.New("not listening")
	}
	return nil
}

func fromFile(f *os.File) (net.Listener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, bare(err)
	}
	switch l.(type) {
	case *net.TCPListener, *net.UnixListener:
	default:
		return nil, fmt.Errorf("address family %s", l.Addr().Network())
	}
	return l, f.Close()
}
