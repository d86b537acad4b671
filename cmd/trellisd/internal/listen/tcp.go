package listen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// lookupTimeout bounds the search for a host's addresses. Go's own resolver may
// try for minutes while name servers are out of reach.
const lookupTimeout = 10 * time.Second

// openTCP listens on the first of the host's addresses that this machine has.
func openTCP(ctx context.Context, a address) (net.Listener, error) {
	port, err := portNumber(a.port)
	if err != nil {
		return nil, err
	}
	ips, err := lookup(ctx, a.host)
	if err != nil {
		return nil, err
	}
	var first error
	for _, ip := range ips {
		l, err := listenTCP(ctx, netip.AddrPortFrom(ip, port))
		if err == nil {
			return l, nil
		}
		first = cmp.Or(first, err)
		// A port that is taken on one address is no reason to be found on another:
		// that would leave some clients at the wrong server.
		if !errors.Is(err, syscall.EADDRNOTAVAIL) && !errors.Is(err, syscall.EAFNOSUPPORT) {
			return nil, err
		}
	}
	return nil, first
}

func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if unknown, ok := errors.AsType[*net.DNSError](err); ok {
		return nil, fmt.Errorf("host %q: %s; check the name, or give an IP address", host, unknown.Err)
	}
	if err != nil {
		return nil, fmt.Errorf("looking up host %q: %w", host, err)
	}
	return ips, nil
}

func listenTCP(ctx context.Context, at netip.AddrPort) (net.Listener, error) {
	// What lc says of keep-alive counts for nobody: the server sets it on the socket.
	var lc net.ListenConfig
	// Clients speak plain TCP; a multipath socket would only be a layer between.
	lc.SetMultipathTCP(false)

	network := "tcp" // for "::", which then takes IPv4 too
	switch ip := at.Addr().Unmap(); {
	case ip.Is4():
		network = "tcp4" // "0.0.0.0" under "tcp" would take IPv6 too
		at = netip.AddrPortFrom(ip, at.Port())
	case !ip.IsUnspecified():
		network = "tcp6"
	}
	l, err := lc.Listen(ctx, network, at.String())
	if err != nil {
		return nil, bare(err)
	}
	return l, nil
}

// bare takes from an error of net what we say ourselves: the operation and the
// address. What is left is the system's own text.
func bare(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if call, ok := errors.AsType[*os.SyscallError](err); ok {
		err = call.Err
	}
	return err
}
