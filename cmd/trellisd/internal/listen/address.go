package listen

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// DefaultHost is where a server listens that was given no address.
const DefaultHost = "0.0.0.0"

// address is a parsed ADDR: either path, or host and port.
type address struct {
	path string // of a UNIX socket
	host string // a name or an IP address without brackets
	port string // a number or a service name
}

// parseAddress reads HOST, IP, HOST:PORT, IP:PORT, [IP6]:PORT, [IP6] or
// unix:PATH. Where it names no port, port is taken.
func parseAddress(s, port string) (address, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if path == "" {
			return address{}, fmt.Errorf("%s: the path is missing; give unix:PATH", s)
		}
		return address{path: path}, nil
	}
	a := address{host: s, port: port}
	if _, err := netip.ParseAddr(s); err == nil {
		return a, nil
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if inner, ok := strings.CutSuffix(inner, "]"); ok {
			a.host = inner
			return a, nil
		}
	} else if !strings.Contains(s, ":") {
		return a, nil
	}
	host, p, err := net.SplitHostPort(s)
	if err != nil || host == "" || p == "" {
		return address{}, fmt.Errorf("%s: not an address; give HOST, HOST:PORT, [IPV6]:PORT or unix:PATH", s)
	}
	a.host, a.port = host, p
	return a, nil
}

// String is the address as the user would write it.
func (a address) String() string {
	if a.path != "" {
		return "unix:" + a.path
	}
	return net.JoinHostPort(a.host, a.port)
}

func portNumber(port string) (uint16, error) {
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		return uint16(n), nil
	}
	// The system's own lookup lets blanks and signs pass.
	if port != "" && strings.Trim(port, " \t+-") == port {
		if n, err := net.LookupPort("tcp", port); err == nil {
			return uint16(n), nil
		}
	}
	return 0, fmt.Errorf("no such port or service: %q; give a number from 0 to 65535 or a name from /etc/services", port)
}
