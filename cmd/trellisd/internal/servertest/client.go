package servertest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Client is a connection of a test to a server.
type Client struct {
	T    testing.TB
	Conn net.Conn
	In   *bufio.Reader
}

// Dial connects to an address.
func Dial(t testing.TB, a net.Addr) *Client {
	t.Helper()
	conn, err := net.DialTimeout(a.Network(), a.String(), Patience)
	if err != nil {
		t.Fatal(err)
	}
	return ClientOn(t, conn)
}

// ClientOn is a client with a connection, which is closed at the end of the test.
func ClientOn(t testing.TB, conn net.Conn) *Client {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(Patience)); err != nil {
		t.Fatal(err)
	}
	return &Client{t, conn, bufio.NewReader(conn)}
}

// Renew begins the time limit anew: a long conversation takes its time on a busy machine.
func (c *Client) Renew() {
	c.T.Helper()
	if err := c.Conn.SetDeadline(time.Now().Add(Patience)); err != nil {
		c.T.Fatal(err)
	}
}

// Send sends lines, each with CR LF behind it. The time limit begins anew.
func (c *Client) Send(lines ...string) {
	c.T.Helper()
	c.Renew()
	if _, err := io.WriteString(c.Conn, strings.Join(lines, "\r\n")+"\r\n"); err != nil {
		c.T.Fatal(err)
	}
}

// Want reads as many lines and compares them. The time limit begins anew for each.
func (c *Client) Want(lines ...string) {
	c.T.Helper()
	for _, want := range lines {
		c.Renew()
		got, err := c.In.ReadString('\n')
		if got != want+"\r\n" {
			c.T.Fatalf("got %q, %v; want %q", got, err, want)
		}
	}
}

// WantEOF makes sure that the server closes and sends nothing before.
func (c *Client) WantEOF() {
	c.T.Helper()
	c.Renew()
	b, err := c.In.ReadByte()
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		c.T.Fatalf("got %q, %v; want the end", b, err)
	}
}

// Line reads a line.
func (c *Client) Line() string {
	c.T.Helper()
	c.Renew()
	line, err := c.In.ReadString('\n')
	if err != nil {
		c.T.Fatalf("got %q, %v; want a line", line, err)
	}
	return strings.TrimSuffix(line, "\r\n")
}

// Data sends a command that is answered by OK and data, and returns the data.
func (c *Client) Data(command string) string {
	c.T.Helper()
	c.Send(command)
	return c.body(command)
}

// body reads OK with a size, and the data behind it.
func (c *Client) body(what string) string {
	c.T.Helper()
	line := c.Line()
	var size int
	if _, err := fmt.Sscanf(line, "OK %d", &size); err != nil {
		c.T.Fatalf("%s: got %q", what, line)
	}
	b := make([]byte, size+2)
	if _, err := io.ReadFull(c.In, b); err != nil {
		c.T.Fatal(err)
	}
	return string(b[:size])
}

// Stats reads the server's statistics.
func Stats(c *Client) map[string]string {
	c.T.Helper()
	c.Send("stats")
	return c.Dict()
}

// Dict reads the reply to a command that is answered by OK and a dictionary.
func (c *Client) Dict() map[string]string {
	c.T.Helper()
	dict := make(map[string]string)
	for line := range strings.Lines(c.body("a dictionary")) {
		if key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok {
			dict[key] = value
		}
	}
	return dict
}

// CPU is the processor time that the server has used, in seconds.
func CPU(t *testing.T, c *Client) (total float64) {
	t.Helper()
	dict := Stats(c)
	for _, key := range []string{"rusage-utime", "rusage-stime"} {
		v, err := strconv.ParseFloat(dict[key], 64)
		if err != nil {
			t.Fatal(err)
		}
		total += v
	}
	return total
}
