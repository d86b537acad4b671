package load

import (
	"net"
	"strconv"

	"golang.org/x/sys/unix"

	"trellis/bench"
)

// sockaddr returns the address as the kernel wants it, and its family. Each call makes one, because its users write
// into it.
func sockaddr(a *bench.Address) (unix.Sockaddr, int) {
	port := int(a.TCP().Port())
	switch ip := a.TCP().Addr(); {
	case ip.Is4():
		return &unix.SockaddrInet4{Port: port, Addr: ip.As4()}, unix.AF_INET
	case ip.Is6():
		return &unix.SockaddrInet6{Port: port, Addr: ip.As16(), ZoneId: zoneID(ip.Zone())}, unix.AF_INET6
	}
	return &unix.SockaddrUnix{Name: a.Name}, unix.AF_UNIX
}

// zoneID returns the number of the interface that a link-local address belongs to, 0 when it names none.
func zoneID(zone string) uint32 {
	if zone == "" {
		return 0
	}
	if i, err := net.InterfaceByName(zone); err == nil {
		return uint32(i.Index)
	}
	n, _ := strconv.ParseUint(zone, 10, 32) // it may be the number already
	return uint32(n)
}

// portsPerSource is how many connections leave from one source address: well below the 28,000 ephemeral ports that
// Linux hands out by default, so that connections of the recent past do not stand in the way.
const portsPerSource = 20000

// dial begins a connection. It never blocks: inProgress tells that the descriptor becomes writable when the
// connection stands or has failed. n numbers the connections of a run; on IPv4 loopback it spreads them over
// source addresses, because one has too few ports for more than 28,000.
func dial(a *bench.Address, n int) (fd int, inProgress bool, err error) {
	sa, family := sockaddr(a)
	fd, err = newSocket(family)
	if err != nil {
		return -1, false, err
	}
	if a.Network == "tcp" {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		if src := n / portsPerSource; err == nil && src > 0 && a.Loopback() && family == unix.AF_INET {
			err = bindSource(fd, [4]byte{127, 0, 1, byte(src)})
		}
		if err != nil {
			unix.Close(fd)
			return -1, false, err
		}
	}
	for {
		err = unix.Connect(fd, sa)
		if err != unix.EINTR {
			break
		}
	}
	switch err {
	case nil:
		return fd, false, nil
	case unix.EINPROGRESS:
		return fd, true, nil
	}
	unix.Close(fd)
	return -1, false, err
}
