package load

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"trellis/bench"
)

// listen opens a socket for a server of which a test plays the part. The caller closes it.
func listen(t *testing.T) (net.Listener, bench.Address) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := bench.ParseAddress(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return l, addr
}

// dialAnswer connects to a server that answers the first command with a text, and ends the connection.
func dialAnswer(t *testing.T, text string) *control {
	t.Helper()
	l, addr := listen(t)
	defer l.Close()
	ctl, err := dialControl(&addr, "", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ctl.Close() })
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer theirs.Close()
		_, _ = theirs.Read(make([]byte, 100))
		_, _ = theirs.Write([]byte(text))
	}()
	return ctl
}

func TestALongReplyIsReadAsAWhole(t *testing.T) {
	body := strings.Repeat("0123456789", 100_000)
	ctl := dialAnswer(t, fmt.Sprintf("OK %d\r\n%s\r\nUSING next\r\n", len(body), body))
	r, err := ctl.ask("stats", replyOK)
	if err != nil || string(r.body) != body {
		t.Fatalf("%v, %d bytes", err, len(r.body))
	}
	if err := ctl.receive(r); err != nil || string(r.line) != "USING next" {
		t.Errorf("%v, %q", err, r.line)
	}
}

func TestMemoryIsTakenForWhatHasComeOfAReply(t *testing.T) {
	ctl := dialAnswer(t, "OK 2147483648\r\n"+strings.Repeat("x", 100_000))
	if _, err := ctl.ask("stats", replyOK); err == nil {
		t.Error("no error")
	}
	if n := ctl.in.Size(); n > 1<<20 {
		t.Errorf("%d bytes", n)
	}
}
