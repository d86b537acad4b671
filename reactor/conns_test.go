package reactor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/codec"
)

// extended serves with the commands that beanstalkd does not have.
func extended(t testing.TB, network string, change func(*Config)) *testServer {
	t.Helper()
	return serveConfig(t, network, hooks{}, nil, func(c *Config) {
		c.Loops, c.Extensions = 3, true
		change(c)
	})
}

// field is a value out of the description of a connection.
func field(t testing.TB, entry, key string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^[- ]*` + key + `: "?(.*?)"?$`).FindStringSubmatch(entry)
	if m == nil {
		t.Fatalf("no %s in %q", key, entry)
	}
	return m[1]
}

func TestAConnectionIsDescribedWithItsAddressAndWhatItHasSent(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := extended(t, network, func(*Config) {})
		c := ts.dial()
		body := strings.Repeat("b", 100_000)
		c.put(body)
		c.send("reserve\r\nlist-tube-used\r\nstats-conn\r\n")
		c.expect(reserved(1, body) + "USING default\r\n")
		own := c.data()
		want := c.LocalAddr().String()
		if network == "unix" {
			want = "unix"
		}
		in := len("put 0 0 120 100000\r\n") + len(body) + len("\r\nreserve\r\nlist-tube-used\r\nstats-conn\r\n")
		out := len("INSERTED 1\r\n") + len(reserved(1, body)) + len("USING default\r\n")
		for key, want := range map[string]string{
			"addr": want, "commands": "4", "bytes-in": fmt.Sprint(in), "bytes-out": fmt.Sprint(out), "reserved-jobs": "[1]",
		} {
			if got := field(t, own, key); got != want {
				t.Errorf("%s is %s, want %s", key, got, want)
			}
		}
		// Others, on this loop or another, see the same.
		for range 3 {
			o := ts.dial()
			o.send("stats-conn " + field(t, own, "id") + "\r\n")
			got := o.data()
			for _, key := range []string{"id", "addr", "commands", "bytes-in", "reserved-jobs", "producer", "worker"} {
				if got, want := field(t, got, key), field(t, own, key); got != want {
					t.Errorf("to another, %s is %s, want %s", key, got, want)
				}
			}
			if got, want := field(t, got, "bytes-out"), fmt.Sprint(out+len(own)+len("OK \r\n")+len(fmt.Sprint(len(own)-2))); got != want {
				t.Errorf("to another, bytes-out is %s, want %s", got, want)
			}
		}
	})
}

func TestConnectionsOfAllLoopsAreListed(t *testing.T) {
	t.Parallel()
	directNetworks(t, func(t *testing.T, network string) {
		ts := extended(t, network, func(*Config) {})
		var ids []string
		for i := range 200 {
			c := ts.dial()
			c.do(fmt.Sprintf("use t%d\r\n", i), fmt.Sprintf("USING t%d\r\n", i))
			ids = append(ids, fmt.Sprint(i+1))
		}
		inside := ts.connect()
		ids = append(ids, "201")
		inside.send("list-connections\r\n")
		list := inside.data()
		entries := strings.Split(list, "- id")[1:]
		var got []string
		for i, e := range entries {
			e = "- id" + e
			got = append(got, field(t, e, "id"))
			if i < 200 && field(t, e, "tube") != fmt.Sprint("t", i) {
				t.Errorf("connection %d uses %s", i+1, field(t, e, "tube"))
			}
		}
		if !slices.Equal(got, ids) {
			t.Errorf("listed are %v", got)
		}
		if addr := field(t, "- id"+entries[200], "addr"); addr != "console" {
			t.Errorf("the last is %s", addr)
		}
		last := ts.dial()
		last.send("list-connections 5 201\r\n")
		if got := last.data(); !strings.HasPrefix(got, "---\n- id: 202\n") || strings.Count(got, "- id") != 1 {
			t.Errorf("behind 201: %q", got)
		}
	})
}

func TestTheNameOfAConnectionIsThatOfItsGrant(t *testing.T) {
	t.Parallel()
	d := newDoorkeeper()
	ts := extended(t, "tcp", func(c *Config) { c.Access = d })
	c := ts.dial()
	c.do("auth good\r\n", "AUTHENTICATED\r\n")
	silent := ts.dial()
	ts.until("both are there", func() bool { return ts.sum().Connections == 2 })
	c.send("list-connections\r\n")
	if got := c.data(); field(t, got, "name") != "all" || strings.Count(got, "- id") != 1 {
		t.Errorf("got %q", got)
	}
	silent.Close()
}

func TestServersWithoutExtensionsDoNotKnowConnections(t *testing.T) {
	t.Parallel()
	ts := extended(t, "tcp", func(c *Config) { c.Extensions = false })
	ts.dial().do("stats-conn\r\nstats-conn 1\r\nlist-connections\r\nkick-connection 1\r\ncapabilities\r\n",
		"BAD_FORMAT\r\nBAD_FORMAT\r\nUNKNOWN_COMMAND\r\nUNKNOWN_COMMAND\r\nUNKNOWN_COMMAND\r\n")
}

// Whoever kicks a connection of another loop finds its job at once, also that of a client
// which takes no output.
func TestTheJobsOfAKickedConnectionAreReadyWhenTheAnswerComes(t *testing.T) {
	t.Parallel()
	ts := extended(t, "tcp", func(*Config) {})
	operator := ts.dial()
	body := strings.Repeat("b", 60_000)
	id := operator.put(body)
	for i := range 20 {
		c := ts.dial() // each on the next loop
		c.send("stats-conn\r\n")
		own := field(t, c.data(), "id")
		c.do(fmt.Sprintf("reserve-job %d\r\n", id), reserved(id, body))
		takes := i%2 == 0
		if !takes {
			c.send(strings.Repeat(fmt.Sprintf("peek %d\r\n", id), 500))
			ts.until("it takes no more", func() bool { return ts.sum().Stalled == 1 })
		}
		operator.do("kick-connection "+own+"\r\nreserve-with-timeout 0\r\n", "KICKED\r\n"+reserved(id, body))
		operator.do(fmt.Sprintf("release %d 0 0\r\n", id), "RELEASED\r\n")
		if takes {
			c.expectEOF()
		}
		ts.until("it has gone", func() bool { return ts.sum().Connections == 1 })
		operator.do("kick-connection "+own+"\r\n", "NOT_FOUND\r\n")
	}
}

// Connections are kicked in the middle of whatever they do, by several at a time.
func TestConnectionsAreKickedWhileTheyWork(t *testing.T) {
	t.Parallel()
	ts := extended(t, "tcp", func(*Config) {})
	const jobs, kicks = 50, 100
	operator := ts.dial()
	for range jobs {
		operator.put("x")
	}
	kickers := []*client{ts.dial(), ts.dial()}
	for _, k := range kickers {
		k.do("list-tube-used\r\n", "USING default\r\n")
	}
	var kicked atomic.Int64
	var busy sync.WaitGroup
	for range 4 {
		busy.Go(func() {
			for kicked.Load() < kicks {
				c, err := net.Dial(ts.addr.Network(), ts.addr.String())
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.SetDeadline(time.Now().Add(testTimeout))
				r := bufio.NewReader(c)
				for kicked.Load() < kicks {
					if _, err := io.WriteString(c, "reserve-batch 5\r\nuse a\r\nlist-connections 3\r\nreserve-with-timeout 0\r\ntouch-all\r\n"); err != nil {
						break
					}
					if _, err := r.ReadByte(); err != nil {
						break
					}
				}
				c.Close()
			}
		})
	}
	for _, k := range kickers {
		busy.Go(func() {
			for kicked.Load() < kicks {
				k.send("list-connections 9 3\r\n")
				for _, e := range strings.Split(k.data(), "- id: ")[1:] {
					id, _, _ := strings.Cut(e, "\n")
					k.send("kick-connection " + id + "\r\n")
					if k.line() == "KICKED" {
						kicked.Add(1)
					}
				}
			}
		})
	}
	busy.Wait()
	ts.until("the workers have gone", func() bool { return ts.sum().Connections == 3 })
	operator.send("reserve-batch 1000\r\n")
	operator.expect(fmt.Sprintf("RESERVED_BATCH %d\r\n", jobs))
}

// A loop that is busy with something else keeps nobody but who asks for its connections.
func TestWhoAsksForConnectionsWaitsForTheirLoop(t *testing.T) {
	t.Parallel()
	h, blocked, release := blocker()
	ts := serveConfig(t, "tcp", h, nil, func(c *Config) { c.Loops, c.Extensions = 2, true })
	asker, stuck, same, gone := ts.dialOn(0), ts.dialOn(1), ts.dialOn(0), ts.dialOn(0)
	stuck.send("use block\r\n")
	<-blocked
	asker.send("list-connections\r\nlist-tube-used\r\n")
	gone.send("list-connections\r\n")
	gone.Close()
	same.send("list-tube-used\r\n")
	got := make([]byte, len("USING default\r\n"))
	_, err := io.ReadFull(same.r, got)
	close(release)
	if err != nil {
		t.Error(err)
	}
	if got := asker.data(); !strings.Contains(got, "\n  tube: block\n") {
		t.Errorf("got %q", got)
	}
	asker.expect("USING default\r\n")
}

func TestShutdownAnswersWhoAsksForConnections(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	h := hooks{command: func(_ *conn, cmd *codec.Command) {
		if cmd.Op == codec.OpListConns {
			asked <- struct{}{}
		}
	}}
	ts := serveConfig(t, "tcp", h, nil, func(c *Config) { c.Loops, c.Extensions = 3, true })
	var clients []*client
	for range 50 {
		clients = append(clients, ts.dial())
	}
	for _, c := range clients {
		c.send("list-connections\r\n")
	}
	for range clients {
		<-asked
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := ts.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	for _, c := range clients {
		if got := c.data(); !strings.HasPrefix(got, "---\n- id: ") {
			t.Errorf("got %.100q", got)
		}
		c.expectEOF()
	}
}

// A list is made of parts, which are sent as they are taken.
func TestALongListOfConnectionsArrivesWhole(t *testing.T) {
	t.Parallel()
	ts := extended(t, "tcp", func(*Config) {})
	name := strings.Repeat("n", 190)
	for i := range 300 {
		c := ts.dial()
		for j := range 9 {
			c.send(fmt.Sprintf("watch %s%d-%d\r\n", name, i, j))
		}
		for j := range 9 {
			c.expect(fmt.Sprintf("WATCHING %d\r\n", j+2))
		}
	}
	c := ts.dial()
	c.send("list-connections\r\n")
	got := c.data()
	if len(got) < 300*9*190 || strings.Count(got, name) != 300*9 || !strings.HasSuffix(got, "\n\r\n") {
		t.Errorf("%d bytes, with %d of the names", len(got), strings.Count(got, name))
	}
	c.do("list-tube-used\r\n", "USING default\r\n")
}
