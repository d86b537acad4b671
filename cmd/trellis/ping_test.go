package main

import (
	"bufio"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"trellis/bench"
)

// answering answers the first line of every connection, and returns the
// listener's address. Without an answer it closes the connection.
func answering(t *testing.T, network, addr, answer string) string {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	return serveEach(t, l, func(c net.Conn) { answerPing(c, answer) })
}

// answerPing answers the first line, if it is what ping asks.
func answerPing(c net.Conn, answer string) {
	if line, _ := bufio.NewReader(c).ReadString('\n'); line == "list-tube-used\r\n" {
		_, _ = io.WriteString(c, answer)
	}
}

func TestPingTellsByTheAnswerWhetherAServerIsThere(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	answering(t, "unix", socket, "USING default\r\n")
	for _, tt := range []struct {
		name, addr string
		ok         bool
	}{
		{"a server", answering(t, "tcp", "127.0.0.1:0", "USING default\r\n"), true},
		{"a server on a UNIX socket", "unix:" + socket, true},
		{"something else", answering(t, "tcp", "127.0.0.1:0", "HTTP/1.1 400 Bad Request\r\n"), false},
		{"half an answer", answering(t, "tcp", "127.0.0.1:0", "USING"), false},
		{"nobody", "127.0.0.1:1", false},
	} {
		cmd := newCommand()
		cmd.SetArgs([]string{"ping", "-a", tt.addr})
		if err := cmd.Execute(); err == nil != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestPingIsNotPatientForEver(t *testing.T) {
	l := listen(t) // accepts nobody
	defer l.Close()
	a, err := bench.ParseAddress(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := ping(&a, "", 10*time.Millisecond); err == nil {
		t.Error("no error")
	}
}
