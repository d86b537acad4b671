//go:build proof

package soak

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

func init() { scales = append(scales, scale{"changes", scaleChanges}) }

const (
	// gatheringSize is how many clients a member has. Most systems let a process have so many files.
	gatheringSize = 10_000
	// gatheringHolds is how many jobs each of them holds that does not wait for one.
	gatheringHolds = 10
)

// A gathering is very many clients of a member. Every second one waits for a job, the others hold some.
type gathering struct {
	t        *testing.T
	waits    []*patron
	holds    []*patron
	producer *patron
}

// patron is a client of a gathering.
type patron struct {
	conn net.Conn
	in   *bufio.Reader
	jobs []string // that it holds
}

func (c *gathering) patron(addr string) *patron {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	return &patron{conn: conn, in: bufio.NewReaderSize(conn, 256)}
}

func (c *gathering) send(p *patron, commands string) {
	c.t.Helper()
	if _, err := io.WriteString(p.conn, commands); err != nil {
		c.t.Fatal(err)
	}
}

// want reads a line that begins like that, and returns the rest.
func (c *gathering) want(p *patron, line string) string {
	c.t.Helper()
	if err := p.conn.SetReadDeadline(time.Now().Add(servertest.Patience)); err != nil {
		c.t.Fatal(err)
	}
	got, err := p.in.ReadString('\n')
	rest, ok := strings.CutPrefix(strings.TrimSpace(got), line)
	if !ok {
		c.t.Fatalf("got %q, want %s: %v", got, line, err)
	}
	return rest
}

// reserved reads a job and returns its id.
func (c *gathering) reserved(p *patron) string {
	c.t.Helper()
	id, _, _ := strings.Cut(c.want(p, "RESERVED "), " ")
	c.want(p, "")
	return id
}

// gather connects clients to a member.
func gather(t *testing.T, addr string) *gathering {
	t.Helper()
	c := &gathering{t: t}
	c.producer = c.patron(addr)
	c.send(c.producer, "use empty\r\n")
	c.want(c.producer, "USING")
	for range gatheringSize / 2 {
		p := c.patron(addr)
		c.send(p, "watch empty\r\nignore default\r\nreserve\r\n")
		c.waits = append(c.waits, p)
	}
	for range gatheringSize - gatheringSize/2 {
		c.holds = append(c.holds, c.patron(addr))
	}
	for _, p := range c.waits {
		c.want(p, "WATCHING 2")
		c.want(p, "WATCHING 1")
	}
	pump(t, servertest.AddrOn("tcp", addr), len(c.holds)*gatheringHolds, "INSERTED", putting(1, "0"))
	for _, p := range c.holds {
		c.send(p, strings.Repeat("reserve\r\n", gatheringHolds))
	}
	for _, p := range c.holds {
		for range gatheringHolds {
			p.jobs = append(p.jobs, c.reserved(p))
		}
	}
	return c
}

// finish lets all clients do what they are there for, and leave: nobody has lost a job or a place.
func (c *gathering) finish() {
	c.t.Helper()
	for _, p := range c.holds {
		for _, id := range p.jobs {
			c.send(p, "delete "+id+"\r\n")
		}
	}
	for _, p := range c.holds {
		for range p.jobs {
			c.want(p, "DELETED")
		}
		p.conn.Close()
	}
	for range c.waits {
		c.send(c.producer, "put 0 0 600 1\r\nj\r\n")
		c.want(c.producer, "INSERTED")
	}
	for _, p := range c.waits {
		c.send(p, "delete "+c.reserved(p)+"\r\n")
		c.want(p, "DELETED")
		p.conn.Close()
	}
	c.producer.conn.Close()
}

// scaleChanges measures how long clients wait at a change of leader when very many others go on with what they hold.
// The members share the processors here, and the clients have some of them, too.
func scaleChanges(t *testing.T) {
	c := clustertest.StartLab(t, 3)
	c.Ctx = t.Context() // it takes as long as it takes
	for _, n := range c.Nodes {
		c.AwaitServed(n)
	}
	transfer := func() {
		l := c.Leader()
		if _, err := c.Ask(l, fmt.Sprintf(`{"op":"transfer","to":%q}`, c.Others(l)[0].Name)); err != nil {
			t.Fatal(err)
		}
	}
	var killed *clustertest.Node
	for _, of := range []struct {
		what   string
		leads  bool // whose clients they are
		change func()
	}{
		{"a transfer", false, transfer},
		{"a transfer by their leader", true, transfer},
		{"kill -9 of the leader", false, func() {
			killed = c.Leader()
			c.Stop(killed)
		}},
	} {
		l := c.Leader()
		home := l
		if !of.leads {
			home = c.Others(l)[1]
		}
		began := time.Now()
		all := gather(t, home.Client)
		gathered := time.Since(began)
		time.Sleep(time.Second) // what is left to do for them is done
		small := probe(t, servertest.AddrOn("tcp", home.Client), "use a", "use b")
		began = time.Now()
		of.change()
		next := c.Leader(c.Others(l)...)
		elected := time.Since(began)
		direct := probe(t, servertest.AddrOn("tcp", next.Client), "use a", "use b")
		time.Sleep(3 * time.Second)
		_, _, _, longest := small.end()
		_, _, p99, others := direct.end()
		began = time.Now()
		all.finish()
		row(t, "%s, %d clients that hold %d jobs each and %d that wait: another client of their member waits for %v at most, of which %v until one serves; one of the new leader then p99 %v, longest %v (they came in %v, and were done in %v)",
			of.what, len(all.holds), gatheringHolds, len(all.waits), longest, elected.Round(time.Millisecond), p99, others,
			gathered.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	}
	c.Start(killed)
	c.Agree()
}
