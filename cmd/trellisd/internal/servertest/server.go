package servertest

import (
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
)

// A Server is a process that serves clients, on the addresses in its log.
type Server struct {
	*Process
	Addrs []net.Addr
}

// Start starts trellisd with these arguments and returns when it is ready. It
// listens on a free port of 127.0.0.1 unless there is a -l; sockets for TLS come
// behind.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	listens, tls := 0, 0
	for _, a := range args {
		if strings.HasPrefix(a, "-l") {
			listens++
		}
		if strings.HasPrefix(a, "--tls-listen") {
			tls++
		}
	}
	if listens == 0 {
		args = append([]string{"-l127.0.0.1"}, args...)
		listens = 1
	}
	args = append([]string{"-p0", "-V", "--log-format=json"}, args...)
	return Ready(Launch(t, args...), listens+tls)
}

// Ready waits for a process that logs JSON to listen on that many sockets.
func Ready(p *Process, listens int) *Server {
	p.t.Helper()
	s, err := AwaitReady(p)
	if err != nil {
		p.t.Fatal(err)
	}
	if len(s.Addrs) != listens {
		p.t.Fatalf("the server listens on %v; want %d sockets", s.Addrs, listens)
	}
	return s
}

// AwaitReady waits for a process that logs JSON to serve. It may be called on any goroutine.
func AwaitReady(p *Process) (*Server, error) {
	if err := p.Await(`"ready"`); err != nil {
		return nil, err
	}
	s := &Server{Process: p}
	for _, l := range p.Log() {
		var record struct{ Msg, Network, Addr string }
		if json.Unmarshal([]byte(l), &record) == nil && record.Msg == "listening" {
			s.Addrs = append(s.Addrs, address{record.Network, record.Addr})
		}
	}
	return s, nil
}

type address struct{ network, addr string }

func (a address) Network() string { return a.network }

func (a address) String() string { return a.addr }

// AddrOn is an address that is written as text.
func AddrOn(network, addr string) net.Addr { return address{network, addr} }

// DialInTime sends lines on a new connection, and returns when the first answer is there. The server
// may end a connection that a stalled machine has made too late to use: then there is another.
func (s *Server) DialInTime(lines ...string) *Client {
	s.t.Helper()
	var err error
	for range Attempts {
		c := s.Dial(0)
		if _, err = io.WriteString(c.Conn, strings.Join(lines, "\r\n")+"\r\n"); err == nil {
			_, err = c.In.Peek(1)
		}
		if err == nil {
			return c
		}
	}
	s.t.Fatalf("%q is never answered: %v", lines, err)
	return nil
}

// Dial connects to the server's n-th address.
func (s *Server) Dial(n int) *Client {
	s.t.Helper()
	return Dial(s.t, s.Addrs[n])
}
