package script

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// miniature serves connections that know the empty line, "echo ..." and "quit".
// The line "reset" makes it close with input unread.
func miniature(t *testing.T) *Socket {
	t.Helper()
	serve := func(c net.Conn) {
		defer c.Close()
		for lines := bufio.NewReader(c); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			switch text, isEcho := strings.CutPrefix(line, "echo "); {
			case isEcho:
				io.WriteString(c, text)
			case line == "quit\r\n":
				return
			case line == "reset\r\n":
				c.(*net.TCPConn).SetLinger(0)
				return
			default:
				io.WriteString(c, "UNKNOWN_COMMAND\r\n")
			}
		}
	}
	return &Socket{
		Quiet: time.Millisecond,
		Launch: func(options ...string) (*Process, error) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					go serve(c)
				}
			}()
			return &Process{
				Network: "tcp",
				Addr:    l.Addr().String(),
				Drain:   func(bool) error { return nil },
				Stop:    func() { l.Close() },
			}, nil
		},
	}
}

func TestASocketTargetSeesWhatTheServerDoes(t *testing.T) {
	const source = `
conn 1 open
conn 1 < nothing
conn 1 > echo hello
conn 1 < hello
conn 1 >> echo one\r\necho two\r\necho thr
conn 1 < one
conn 1 < two
conn 1 > ee
conn 1 < three
conn 2 > echo x{100000}
conn 2 < x{100000}
conn 2 > quit
conn 2 closed
conn 3 > reset
conn 3 closed
conn 1 half-close
conn 1 closed
conn 4 open
conn 4 close
`
	if err := playOne(t, miniature(t), source); err != nil {
		t.Error(err)
	}
}

func TestASocketTargetLosesPatience(t *testing.T) {
	target := miniature(t)
	target.Patience = time.Millisecond
	s, err := target.Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	// The exchange of Open may not be over in that time; here it is.
	s.(*socketServer).limits.Patience = time.Minute
	c, err := s.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s.(*socketServer).limits.Patience = time.Millisecond
	if b, err := c.Receive(); err != ErrSilence {
		t.Errorf("got %q, %v", b, err)
	}
}
