//go:build proof

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/clustertest"
)

// crew is stock clients at all members of a cluster while its leaders go.
type crew struct {
	*clustertest.Crew
	c     *testCluster
	posts map[*clusterNode]*clustertest.Post
	spans []survived
	stop  context.CancelFunc
	done  chan error
}

// survived is when something happened, and who was not to notice.
type survived struct {
	from, to time.Duration
	posts    []*clustertest.Post
}

// crew has clients work from the moment at which all members serve.
func (c *testCluster) crew() *crew {
	c.t.Helper()
	w := &crew{c: c, posts: map[*clusterNode]*clustertest.Post{}, done: make(chan error, 1)}
	var all []*clustertest.Post
	for _, n := range c.nodes {
		c.awaitServed(n)
		w.posts[n] = &clustertest.Post{Name: n.name, Addr: n.client}
		all = append(all, w.posts[n])
	}
	c.crews++
	w.Crew = clustertest.NewCrew(fmt.Sprint("crew-", c.crews), all...)
	ctx, cancel := context.WithCancel(c.ctx)
	w.stop = cancel
	go func() { w.done <- w.Run(ctx) }()
	c.t.Cleanup(cancel)
	return w
}

// awaitServed waits until a member answers a client.
func (c *testCluster) awaitServed(n *clusterNode) {
	c.t.Helper()
	c.await(func() error {
		conn, err := net.Dial("tcp", n.client)
		if err != nil {
			return err
		}
		defer conn.Close()
		line, err := "", conn.SetDeadline(time.Now().Add(patience))
		if err == nil {
			_, err = io.WriteString(conn, "list-tube-used\r\n")
		}
		if err == nil {
			line, err = bufio.NewReader(conn).ReadString('\n')
		}
		if err == nil && line != "USING default\r\n" {
			err = fmt.Errorf("%s says %q", n.name, line)
		}
		return err
	})
}

// progress waits for so many more replies.
func (w *crew) progress(commands int) {
	w.c.t.Helper()
	if err := w.Recorder.Await(w.c.ctx, w.Recorder.Answered()+commands); err != nil {
		w.c.t.Fatalf("clients have had no %d more replies: %v", commands, err)
	}
}

// over ends the work and checks what everybody has seen. It returns the longest waits of each change.
func (w *crew) over() (waits []time.Duration, err error) {
	w.stop()
	if err := errors.Join(<-w.done, w.Audit(w.c.ctx)); err != nil {
		return nil, err
	}
	w.c.agree()
	for _, s := range w.spans {
		waits = append(waits, w.Longest(s.from, s.to, s.posts...))
	}
	return waits, w.Check()
}

// A change is something that happens to a leader or a gateway. Clients of all members that it is not
// about notice nothing.
type change struct {
	name string
	do   func(w *crew)
}

// during does something that clients of all members but some must not notice.
func (w *crew) during(do func(), but ...*clusterNode) {
	w.c.t.Helper()
	w.progress(100)
	s := survived{from: w.Now()}
	for _, n := range w.c.others(but...) {
		s.posts = append(s.posts, w.posts[n])
	}
	do()
	w.progress(100)
	s.to = w.Now()
	w.spans = append(w.spans, s)
}

// without does something to members that may end their clients' connections. These are back behind end.
func (w *crew) without(do, end func(), members ...*clusterNode) {
	w.c.t.Helper()
	for _, n := range members {
		w.posts[n].Goes()
	}
	w.during(do, members...)
	end()
	for _, n := range members {
		w.c.awaitServed(n)
		w.posts[n].Comes()
	}
}

var killOfAGateway = change{"kill -9 of a gateway", func(w *crew) {
	n := anyOf(w.c.others(w.c.leader()))
	w.without(func() { w.c.stop(n) }, func() { w.c.start(n) }, n)
}}

// stopOfAGateway stops one for a while.
func stopOfAGateway(d time.Duration) change {
	return change{fmt.Sprintf("SIGSTOP of a gateway for %v", d), func(w *crew) {
		n := anyOf(w.c.others(w.c.leader()))
		w.without(func() {
			n.signal(syscall.SIGSTOP)
			time.Sleep(d)
			n.signal(syscall.SIGCONT)
			w.progress(100)
		}, func() {}, n)
	}}
}

var aGatewayAlone = change{"a gateway is alone", func(w *crew) {
	n := anyOf(w.c.others(w.c.leader()))
	w.without(func() {
		w.c.network.Isolate(n.name)
		w.progress(100)
	}, w.c.network.Heal, n)
}}

// stall is a silence of a member that only a machine that does much else explains. It is shorter
// than the silence that ends a trunk.
const stall = 2500 * time.Millisecond

// meet has clients work while leaders and gateways go, as often as changes says, a new crew for some of them.
func (c *testCluster) meet(changes int, next func() change) {
	c.t.Helper()
	const some = 10
	var all []time.Duration
	disturbed := 0
	for met := 0; met < changes; {
		before := len(c.disturbed())
		w := c.crew()
		few := min(some, changes-met)
		for range few {
			ch := next()
			c.t.Log(ch.name)
			ch.do(w)
		}
		waits, err := w.over()
		c.t.Log(w.Summary())
		why := c.disturbed()[before:]
		for _, b := range w.Broken() {
			if b.Silent > stall {
				why = append(why, b.String())
			}
		}
		if err != nil && len(why) > 0 && disturbed < attempts {
			disturbed++
			c.t.Logf("once more, for %q: %v", why, err)
			continue
		}
		if err != nil {
			c.t.Fatal(err)
		}
		met += few
		all = append(all, waits...)
	}
	c.t.Logf("longest wait of a command in each change: %s", summary(all))
}

// disturbed tells which leaderships have ended without the test's doing.
func (c *testCluster) disturbed() (why []string) {
	for _, p := range c.launched {
		for _, l := range p.log() {
			var record struct{ Msg, Why, Reason string }
			switch err := json.Unmarshal([]byte(l), &record); {
			case err != nil:
			case record.Msg == "this node does not lead any more" && record.Why != "it was handed over":
				why = append(why, record.Why)
			case record.Msg == "no other member takes over":
				why = append(why, record.Reason)
			}
		}
	}
	return why
}

// often is how many changes a test of them makes: some, or so many in make cluster, where nothing runs beside it.
func often(t *testing.T, some, long int) int {
	if os.Getenv(clusterTime) != "" {
		return long
	}
	t.Parallel()
	if raceEnabled {
		return 1
	}
	return some
}

func TestClientsOfOthersDoNotNoticeAGatewayThatGoes(t *testing.T) {
	all := []change{killOfAGateway, stopOfAGateway(time.Second), aGatewayAlone}
	turn := 0
	startCluster(t, 3).meet(often(t, 3, 30), func() change { turn++; return all[turn%len(all)] })
}
