package script

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// An echo is a target without a clock whose servers send back what they receive.
// A line "quit" makes the server close, and "age" is answered by a dictionary with how
// often the driver has let it settle. It keeps a log of what the driver asked for.
type echo struct {
	log []string
}

func (e *echo) Start(clients []Client, options ...string) (Server, error) {
	if slices.Contains(options, "-fail") {
		return nil, errors.New("does not start")
	}
	if clients == nil {
		e.note("start %s", strings.Join(options, " "))
	} else {
		e.note("start for %v %s", clients, strings.Join(options, " "))
	}
	return e, nil
}

func (e *echo) note(format string, args ...any) { e.log = append(e.log, fmt.Sprintf(format, args...)) }

func (e *echo) count(what string) (n int) {
	for _, s := range e.log {
		if s == what {
			n++
		}
	}
	return n
}

func (e *echo) Open(client string) (Conn, error) {
	if client == "" {
		e.note("open")
	} else {
		e.note("open as %s", client)
	}
	return &echoConn{server: e}, nil
}

func (e *echo) Wait(d time.Duration) { e.note("wait %v", d) }
func (e *echo) Settle()              { e.note("settle") }
func (e *echo) Drain(on bool) error  { e.note("drain %v", on); return nil }
func (e *echo) Stop()                { e.note("stop") }

type echoConn struct {
	server *echo
	buf    []byte
	closed bool
}

func (c *echoConn) Send(p []byte) error {
	c.server.note("send %s", quote(p))
	switch string(p) {
	case "quit\r\n":
		c.closed = true
	case "age\r\n":
		data := fmt.Sprintf("---\nage: %d\n", c.server.count("settle"))
		c.buf = fmt.Appendf(c.buf, "OK %d\r\n%s\r\n", len(data), data)
	default:
		c.buf = append(c.buf, p...)
	}
	return nil
}

// Receive returns one byte at a time, so that the driver has to put them together.
func (c *echoConn) Receive() ([]byte, error) {
	if len(c.buf) > 0 {
		b := c.buf[:1]
		c.buf = c.buf[1:]
		return b, nil
	}
	if c.closed {
		return nil, io.EOF
	}
	return nil, ErrSilence
}

func (c *echoConn) Pending() ([]byte, error) {
	b, err := c.Receive()
	if errors.Is(err, ErrSilence) {
		err = nil
	}
	return b, err
}

func (c *echoConn) HalfClose() error { c.server.note("half-close"); c.closed = true; return nil }
func (c *echoConn) Close() error     { c.server.note("close"); return nil }

func playOne(t *testing.T, target Target, source string, tags ...string) error {
	t.Helper()
	cases, err := Parse("file.txt", "== case\n"+source)
	if err != nil {
		t.Fatal(err)
	}
	return Play(cases[0], target, tags...)
}

func TestPlayingSucceedsWhenTheServerDoesAsWritten(t *testing.T) {
	const source = `
server -z 5
conn 1 open
conn 1 > hello
conn 1 < hello
conn 1 >> a\r\nb\r\nc
conn 1 < a
conn 1 < b
conn 1 >
conn 1 < c
conn 1 >> OK 14\r\n---\n- default\n\r\nrest\r\n
conn 1 < OK {#}
| ---
[no] | - other
[!no] | - {*}
conn 1 < rest
conn 1 < nothing
[no] conn 1 < something
conn 2 > two
conn 2 < two
conn 1 half-close
conn 1 closed
conn 2 > quit
conn 2 closed
`
	if err := playOne(t, &echo{}, source); err != nil {
		t.Error(err)
	}
}

func TestPlayingFailsAtTheLineThatDoesNotHold(t *testing.T) {
	for source, want := range map[string]string{
		"conn 1 > a\nconn 1 < b":                                   "file.txt:3: conn 1 < b: received a",
		"conn 1 < b":                                               "no reply",
		"conn 1 > ab\nconn 1 < abc":                                "received ab",
		"conn 1 > a\nconn 1 < a\nconn 1 < a":                       "file.txt:4",
		"conn 1 > a\nconn 1 < nothing":                             "file.txt:3: conn 1 < nothing: received a",
		`conn 1 >> ab\r\n`:                                         "conn 1: received more than asked for",
		"conn 1 > a\nconn 1 closed":                                "received a",
		"conn 1 open\nconn 1 closed":                               "not closed",
		"conn 1 > quit\nconn 1 < nothing":                          "EOF",
		"conn 1 > quit\nconn 1 < a":                                "EOF",
		"conn 1 >> OK 3\\r\\n---\\n\\r\\n\nconn 1 < OK {#}\n| ---": "received OK 3",
		"conn 1 >> a\\r\\n\nconn 1 ? x: a 1":                       "received a",
		"conn 1 ? NOT_FOUND: a 1":                                  "received NOT_FOUND",
		"conn 1 ? OK 99999\\r\\n---\\na: a 1":                      "received only OK 99999",
		"conn 1 ? OK 8\\r\\n---\\na: 1\\n: a 2":                    "received",
		"server -fail\nconn 1 > a":                                 "does not start",
		"conn 1 open\nserver -z 5":                                 "has been started",
		"drain on":                                                 "no connection",
		"conn 1 > a\nconn 1 < a\n[tag] conn 1 < too\nwait x":       "",
	} {
		cases, err := Parse("file.txt", "== case\n"+source)
		if err == nil {
			err = Play(cases[0], &echo{}, "tag")
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", source, err, want)
		}
	}
}

// A dictionary answers every line with a dictionary.
type dictionary struct{ echo }

func (d *dictionary) Start([]Client, ...string) (Server, error) { return d, nil }

func (d *dictionary) Open(string) (Conn, error) {
	return &dictionaryConn{echoConn{server: &d.echo}}, nil
}

type dictionaryConn struct{ echoConn }

func (c *dictionaryConn) Send([]byte) error {
	const data = "---\nname: \"some\"\nready: 12\nname-two: x\nlast: \n"
	c.buf = fmt.Appendf(c.buf, "OK %d\r\n%s\r\n", len(data), data)
	return nil
}

func TestValuesAreFoundInADictionary(t *testing.T) {
	for query, want := range map[string]bool{
		"name some":                       true,
		"ready 12":                        true,
		"ready 12, name some, name-two x": true,
		"ready {10..12}":                  true,
		"name {*}":                        true,
		"ready 1":                         false,
		"ready 2":                         false,
		"ready 123":                       false,
		"eady 12":                         false,
		"nothing 1":                       false,
		"name some, ready 13":             false,
		"ready {10..11}":                  false,
	} {
		err := playOne(t, &dictionary{}, "conn 1 ? stats: "+query)
		if (err == nil) != want {
			t.Errorf("%s: got %v", query, err)
		}
	}
}

func TestTheDriverSettlesWhereTheOrderOfConnectionsMatters(t *testing.T) {
	const source = `
conn 1 > a
conn 1 > b
conn 2 > c
conn 1 < a
conn 1 < b
conn 2 < c
conn 1 > d
conn 1 < d
conn 2 > e
wait 1s
conn 1 > f
conn 2 < e
conn 2 close
conn 1 < f
conn 3 > g
drain on
conn 3 < g
`
	target := &echo{}
	if err := playOne(t, target, source); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"start ",
		"open", `send a\r\n`, `send b\r\n`, "settle", "open", `send c\r\n`,
		`send d\r\n`, `send e\r\n`, "wait 1s", `send f\r\n`, "settle", "close",
		"settle", "open", `send g\r\n`, "settle", "drain true",
	}
	if got := target.log[:len(want)]; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if rest := target.log[len(want):]; !slices.Equal(rest, []string{"close", "close", "stop"}) {
		t.Errorf("at the end: %q", rest)
	}
}

func TestAQueryBehindACloseWaitsUntilItHolds(t *testing.T) {
	const source = "conn 1 open\nconn 2 open\nconn 2 close\nconn 1 ? age: age "
	if err := playOne(t, &echo{}, source+"7"); err != nil {
		t.Error(err)
	}
	if err := playOne(t, &echo{}, source+"0"); err == nil || !strings.Contains(err.Error(), "not so in\n---\nage: 300") {
		t.Errorf("it cannot come true: %v", err)
	}
	if err := playOne(t, &echo{}, "conn 1 open\nconn 1 ? age: age 1"); err == nil {
		t.Error("nobody has closed, and it was asked again")
	}
}

func TestLongRepliesAreCutInMessages(t *testing.T) {
	err := playOne(t, &echo{}, "conn 1 > x{9999}\nconn 1 < x{9999}y")
	if err == nil || len(err.Error()) > 4000 || !strings.Contains(err.Error(), "bytes more") {
		t.Errorf("got %v", err)
	}
}

func TestClientsWithSomeRightsAreToldToTheTarget(t *testing.T) {
	cases, err := Parse("x.txt", "== a\nclient a put,work b,c/*\nclient d all *\nserver -z 1\nconn 1 as a\nconn 1 > x\nconn 1 < x\nconn 2 open\n")
	if err != nil {
		t.Fatal(err)
	}
	e := new(echo)
	if err := Play(cases[0], e); err != nil {
		t.Fatal(err)
	}
	want := []string{"start for [{a [put work] [b c/*]} {d [all] [*]}] -z 1", "open as a"}
	if got := e.log[:2]; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := Play(cases[0], new(Socket)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("by a target that knows no clients: %v", err)
	}
}
