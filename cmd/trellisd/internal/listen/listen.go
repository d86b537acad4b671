package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"strings"
	"syscall"

	"trellis/reactor"
)

// ProxySuffix stands behind an address whose clients come by proxies that say so.
const ProxySuffix = ",proxy"

// Open opens a socket for every address, in order; none at all means DefaultHost.
// port is for addresses that name none. flag is the option with which an error advises
// to choose another port. mode is that of UNIX sockets, 0 for what the umask makes of it.
// What is worth telling beside errors, such as a stale socket file that was replaced, goes to
// log. An address with [ProxySuffix] makes a [reactor.Proxied]. If one address fails, those
// before it are closed again.
func Open(
	ctx context.Context, addrs []string, port, flag string, mode fs.FileMode, log *slog.Logger,
) ([]net.Listener, error) {
	if len(addrs) == 0 {
		addrs = []string{DefaultHost}
	}
	var opened []net.Listener
	for _, s := range addrs {
		l, err := open(ctx, s, port, flag, mode, log)
		if err != nil {
			return nil, errors.Join(err, closeAll(opened))
		}
		opened = append(opened, l)
	}
	return opened, nil
}

// Check reports whether an address, with a port for one that names none, is written so that Open
// understands it. It does not look whether this machine has the address.
func Check(addr, port string) error {
	a, err := parseAddress(strings.TrimSuffix(addr, ProxySuffix), port)
	switch {
	case err != nil:
	case a.path == "":
		_, err = portNumber(a.port)
	default:
		err = checkPath(a.path)
	}
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w", addr, err)
	}
	return nil
}

func open(ctx context.Context, s, port, flag string, mode fs.FileMode, log *slog.Logger) (net.Listener, error) {
	s, proxied := strings.CutSuffix(s, ProxySuffix)
	a, err := parseAddress(s, port)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %w", err)
	}
	var l net.Listener
	if a.path != "" {
		l, err = openUnix(ctx, a.path, mode, log)
	} else {
		l, err = openTCP(ctx, a)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w%s", a, err, advice(a, flag, err))
	}
	if proxied {
		return reactor.Proxied{Listener: l}, nil
	}
	return l, nil
}

func closeAll(ls []net.Listener) error {
	var errs []error
	for _, l := range ls {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// advice is what the user can do about err, to be appended to it.
func advice(a address, flag string, err error) string {
	unix := a.path != ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && !unix:
		return "; stop the process that has it, or choose another port with " + flag
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "; this machine has no such address: use one that it has, or 0.0.0.0 for all"
	case errors.Is(err, syscall.EAFNOSUPPORT):
		return "; this machine does not know that kind of address: use another"
	case errors.Is(err, syscall.EACCES) && !unix:
		return "; ports below 1024 are for root: choose another port with " + flag + ", or start as root with -u USER"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return "; choose a directory in which this user may create files"
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return "; create its directory first"
	default:
		return ""
	}
}
