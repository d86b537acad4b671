//go:build proof

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
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

// awaitServed waits until a member answers a client whose session outlives a change of leader: its
// id begins with a number from the log.
func (c *testCluster) awaitServed(n *clusterNode) {
	c.t.Helper()
	c.await(func() error {
		conn, err := net.Dial("tcp", n.client)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err = conn.SetDeadline(time.Now().Add(patience)); err == nil {
			_, err = io.WriteString(conn, "stats-conn\r\nquit\r\n")
		}
		stats, readErr := io.ReadAll(conn)
		var id uint64
		if _, of, ok := strings.Cut(string(stats), "\nid: "); ok {
			_, _ = fmt.Sscan(of, &id)
		}
		if id < 1<<40 {
			return errors.Join(fmt.Errorf("%s says %q", n.name, stats), err, readErr)
		}
		return nil
	})
}

// progress waits for so many more replies.
func (w *crew) progress(commands int) {
	w.c.t.Helper()
	if err := w.Recorder.Await(w.c.ctx, w.Recorder.Answered()+commands); err != nil {
		w.c.t.Fatalf("clients have had no %d more replies: %v", commands, err)
	}
}

// over ends the work and checks what everybody has seen.
func (w *crew) over() error {
	w.stop()
	if err := errors.Join(<-w.done, w.Audit(w.c.ctx)); err != nil {
		return err
	}
	return w.Check()
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

// elects waits until one of these leads. It notes when that takes so long that gateways give up.
func (w *crew) elects(among ...*clusterNode) {
	w.c.t.Helper()
	began := time.Now()
	w.c.leader(among...)
	if took := time.Since(began); took > longElection {
		w.c.disturbances = append(w.c.disturbances, fmt.Sprintf("nobody led for %v", took))
	}
}

// longElection is some seconds less than a gateway's patience.
const longElection = 3 * time.Second

var killOfTheLeader = change{"kill -9 of the leader", func(w *crew) {
	n := w.c.leader()
	w.without(func() {
		w.c.stop(n)
		w.elects(w.c.others(n)...)
	}, func() { w.c.start(n) }, n)
}}

var killOfAGateway = change{"kill -9 of a gateway", func(w *crew) {
	n := anyOf(w.c.others(w.c.leader()))
	w.without(func() { w.c.stop(n) }, func() { w.c.start(n) }, n)
}}

// whom says whom a change is about: the leader, or another member.
func whom(leads bool) string {
	if leads {
		return "the leader"
	}
	return "a gateway"
}

// member is the leader, or another one.
func (w *crew) member(leads bool) *clusterNode {
	n := w.c.leader()
	if !leads {
		n = anyOf(w.c.others(n))
	}
	return n
}

// deposes is member for a change by which a leader may lose its leadership.
func (w *crew) deposes(leads bool) *clusterNode {
	n := w.member(leads)
	if leads {
		w.c.deposed[n.process]++
	}
	return n
}

// restartOf restarts the leader, or another member, as an upgrade does.
func restartOf(leads bool) change {
	return change{"a restart of " + whom(leads), func(w *crew) {
		n := w.member(leads)
		w.without(func() {
			n.signal(syscall.SIGTERM)
			n.wait()
			w.c.network.Runs(n.name, "", 0)
			n.process = nil
			w.elects(w.c.others(n)...)
		}, func() { w.c.start(n) }, n)
	}}
}

var transfer = change{"a transfer", func(w *crew) {
	w.during(func() {
		w.c.await(func() error { // again if the leader changes meanwhile
			l := w.c.leader()
			_, err := w.c.ask(l, fmt.Sprintf(`{"op":"transfer","to":%q}`, anyOf(w.c.others(l)).name))
			return err
		})
	})
}}

// stopOf stops the leader, or another member, for a while.
func stopOf(leads bool, d time.Duration) change {
	return change{fmt.Sprintf("SIGSTOP of %s for %v", whom(leads), d), func(w *crew) {
		n := w.deposes(leads)
		w.without(func() {
			n.signal(syscall.SIGSTOP)
			time.Sleep(d)
			n.signal(syscall.SIGCONT)
			w.elects()
		}, func() {}, n)
	}}
}

// partitionOf cuts a member off, in one of several ways, until others have a leader.
func partitionOf(leads bool, name string, cut func(c *testCluster, n *clusterNode)) change {
	return change{name, func(w *crew) {
		n := w.deposes(leads)
		w.without(func() {
			cut(w.c, n)
			w.elects(w.c.others(n)...)
		}, w.c.network.Heal, n)
	}}
}

var partitions = []change{
	partitionOf(true, "the leader is alone", func(c *testCluster, n *clusterNode) { c.network.Isolate(n.name) }),
	partitionOf(false, "a gateway is alone", func(c *testCluster, n *clusterNode) { c.network.Isolate(n.name) }),
	partitionOf(true, "the leader hears nobody", func(c *testCluster, n *clusterNode) {
		for _, o := range c.others(n) {
			c.network.Block(o.name, n.name)
		}
	}),
	partitionOf(true, "nobody hears the leader", func(c *testCluster, n *clusterNode) {
		for _, o := range c.others(n) {
			c.network.Block(n.name, o.name)
		}
	}),
	partitionOf(false, "a gateway hears nobody", func(c *testCluster, n *clusterNode) {
		for _, o := range c.others(n) {
			c.network.Block(o.name, n.name)
		}
	}),
	{"connections between members are reset", func(w *crew) {
		w.during(func() {
			for range 5 {
				w.c.network.Reset()
				w.progress(20)
			}
		})
	}},
}

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
		few, names := min(some, changes-met), []string(nil)
		for range few {
			ch := next()
			names = append(names, ch.name)
			ch.do(w)
		}
		err := w.over()
		c.t.Logf("%q: %s", names, w.Summary())
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
		c.agree()
		met += few
		for _, s := range w.spans {
			all = append(all, w.Longest(s.from, s.to, s.posts...))
		}
	}
	c.t.Logf("longest wait of a command in each change: %s", summary(all))
}

// disturbed tells which leaderships have ended without the test's doing.
func (c *testCluster) disturbed() (why []string) {
	for _, p := range c.launched {
		meant := c.deposed[p]
		for _, l := range p.log() {
			var record struct{ Msg, Why, Reason string }
			switch err := json.Unmarshal([]byte(l), &record); {
			case err != nil:
			case record.Msg == "this node does not lead any more" && record.Why != "it was handed over":
				if meant--; meant < 0 {
					why = append(why, record.Why)
				}
			case record.Msg == "no other member takes over":
				why = append(why, record.Reason)
			}
		}
	}
	return append(why, c.disturbances...)
}

// often is how many changes a test of them makes: some, or so many in make cluster, where nothing runs beside it. It
// may wait for other tests, so it comes before a cluster is started.
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

// Clients of members that survive keep their connections, jobs and places when the leader is killed.
func TestClientsOfSurvivorsDoNotNoticeAKill(t *testing.T) {
	n := often(t, 3, 100)
	startCluster(t, 3).meet(n, func() change { return killOfTheLeader })
}

func TestClientsOfOthersDoNotNoticeAGatewayThatGoes(t *testing.T) {
	all := []change{killOfAGateway, stopOf(false, time.Second), partitions[1]}
	n := often(t, 3, 30)
	startCluster(t, 3).meet(n, inTurn(all))
}

// inTurn returns one after the other, and begins again.
func inTurn(all []change) func() change {
	turn := -1
	return func() change { turn++; return all[turn%len(all)] }
}

func TestClientsOfOthersDoNotNoticeARestart(t *testing.T) {
	all := []change{restartOf(true), restartOf(false)}
	n := often(t, len(all), 20)
	startCluster(t, 3).meet(n, inTurn(all))
}

// A transfer ends no connection at any member.
func TestClientsDoNotNoticeATransfer(t *testing.T) {
	n := often(t, 3, 100)
	startCluster(t, 3).meet(n, func() change { return transfer })
}

func TestClientsOfOthersDoNotNoticeAStop(t *testing.T) {
	all := []change{stopOf(true, time.Second), stopOf(false, time.Second), stopOf(true, 5*time.Second)}
	n := often(t, len(all), 20)
	if n > len(all) {
		for _, d := range []time.Duration{time.Second, 5 * time.Second, 7 * time.Second, 20 * time.Second} {
			all = append(all, stopOf(true, d), stopOf(false, d))
		}
	}
	startCluster(t, 3).meet(n, inTurn(all))
}

func TestClientsOfOthersDoNotNoticeAPartition(t *testing.T) {
	n := often(t, len(partitions), 30)
	startCluster(t, 3).meet(n, inTurn(partitions))
}

// Two leaders are lost in a row, the second one while gateways attach to it, or soon after.
func TestClientsOfSurvivorsDoNotNoticeTwoKills(t *testing.T) {
	n := often(t, 1, 20)
	startCluster(t, 5).meet(n, func() change {
		return change{"kill -9 of two leaders", func(w *crew) {
			c := w.c
			first := c.leader()
			second := first
			w.without(func() {
				c.stop(first)
				w.elects(c.others(first)...)
				second = c.leader(c.others(first)...)
				w.posts[second].Goes()
				time.Sleep(time.Duration(rand.Int64N(int64(50 * time.Millisecond)))) // at any moment
				c.stop(second)
				w.elects(c.others(first, second)...)
			}, func() {
				c.start(first)
				c.start(second)
				c.awaitServed(second)
				w.posts[second].Comes()
			}, first)
		}}
	})
}

// A gateway that was stopped until others have its clients' jobs resets them, before it passes on anything that has come
// since: neither a reply, nor a command.
func TestAGatewayThatWasStoppedForLongResetsItsClients(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	for _, n := range c.nodes {
		c.awaitServed(n)
	}
	var g *clusterNode
	var holds, waits *producer
	var id, tube string    // of what the one holds, and where the other waits
	c.await(func() error { // again if the leader changes meanwhile
		g = anyOf(c.others(c.leader()))
		holds, waits = &producer{c: c, at: g}, &producer{c: c, at: g}
		got := strings.Fields(strings.Join(holds.ask("put 0 0 1000 1\r\nx"), ""))
		if len(got) < 2 || got[0] != "INSERTED" {
			return fmt.Errorf("a put is answered %q", got)
		}
		id, tube = got[1], "behind-"+got[1]
		if got := holds.reply("reserve-job " + id); !strings.HasPrefix(got, "RESERVED ") {
			return fmt.Errorf("a reserve is answered %q", got)
		}
		if got := waits.ask("watch "+tube, "ignore default"); len(got) < 2 {
			return errors.New("who is about to wait was reset")
		}
		if _, err := io.WriteString(waits.conn, "reserve\r\n"); err != nil {
			return err
		}
		for range 100 {
			if strings.Contains(holds.reply("stats-tube "+tube), "current-waiting: 1\n") {
				return nil
			}
			time.Sleep(10 * time.Millisecond)
		}
		return errors.New("nobody waits")
	})
	g.signal(syscall.SIGSTOP)
	c.await(g.stands)
	if _, err := io.WriteString(holds.conn, "delete "+id+"\r\n"); err != nil {
		t.Fatal(err)
	}
	other := &producer{c: c, at: c.leader(c.others(g)...)}
	c.await(func() error { // of the first one the gateway would tell its client
		if got := other.ask("use "+tube, "put 0 0 1000 1\r\nx"); len(got) < 2 || !strings.HasPrefix(got[1], "INSERTED ") {
			return fmt.Errorf("a put is answered %q", got)
		}
		return nil
	})
	for _, reserve := range []string{"reserve-with-timeout 1", "reserve-job " + id} {
		c.await(func() error {
			_ = other.ask("watch "+tube, "ignore default")
			if got := other.reply(reserve); !strings.HasPrefix(got, "RESERVED ") {
				return fmt.Errorf("%s is answered %q", reserve, got)
			}
			return nil
		})
	}
	g.signal(syscall.SIGCONT)
	for _, p := range []*producer{holds, waits} {
		if err := p.conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(p.in); len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a client of the gateway is told %q, %v", got, err)
		}
	}
	c.await(func() error {
		got := other.reply("delete " + id)
		if got != "DELETED" {
			_ = other.reply("reserve-job " + id) // it was reset meanwhile
			return fmt.Errorf("who has the job is told %q when it deletes it", got)
		}
		return nil
	})
	for _, n := range c.nodes {
		c.awaitServed(n)
	}
	c.agree()
}

// stands tells whether all of a process has stopped, which it does some time after SIGSTOP.
func (p *process) stands() error {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	for _, task := range tasks {
		stat, readErr := os.ReadFile(task)
		if err = errors.Join(err, readErr); err == nil && !bytes.Contains(stat, []byte(") T ")) {
			err = fmt.Errorf("a thread goes on: %s", stat)
		}
	}
	return err
}

// earlierProgram is the environment variable with a trellisd of an earlier version.
const earlierProgram = "TRELLIS_EARLIER"

// Members of an earlier version are replaced one after the other while clients work, as an operator does it. From the
// moment at which all are new, clients do not notice what clients of the new version do not notice.
func TestMembersAreUpgradedFromAnEarlierProgram(t *testing.T) {
	earlier := os.Getenv(earlierProgram)
	if earlier == "" {
		t.Skip(earlierProgram + " names no program of an earlier version")
	}
	t.Parallel()
	c := prepareCluster(t)
	c.program = earlier
	for range 3 {
		c.add(t.TempDir())
	}
	c.startAll()
	w := c.work()
	w.progress(300)
	c.program = ""
	old := c.leader()
	for _, n := range c.others(old) {
		c.upgrade(n)
		w.progress(200)
	}
	c.await(func() error { // it may not lead by now
		l := c.leader()
		if l != old {
			return nil
		}
		_, err := c.ask(l, fmt.Sprintf(`{"op":"transfer","to":%q}`, anyOf(c.others(l)).name))
		return err
	})
	w.progress(200)
	c.upgrade(old)
	w.progress(300)
	w.check()
	c.meet(4, inTurn([]change{killOfTheLeader, transfer}))
}

// upgrade restarts a member, with the program that is to run from now on, and waits until it has what the others had.
func (c *testCluster) upgrade(n *clusterNode) {
	c.t.Helper()
	n.signal(syscall.SIGTERM)
	if code := n.wait(); code != exitOK {
		c.t.Errorf("%s has ended with %d", n.name, code)
	}
	c.network.Runs(n.name, "", 0)
	n.process = nil
	l, err := c.status(c.leader(c.others(n)...))
	if err != nil {
		c.t.Fatal(err)
	}
	c.start(n)
	c.await(func() error {
		s, err := c.status(n)
		if err == nil && s.Applied < l.Commit {
			err = fmt.Errorf("%s has applied %d of %d", n.name, s.Applied, l.Commit)
		}
		return err
	})
}

// The checks would notice: the next leader knows of no reservations, and hands out what is held.
func TestAJobThatIsHeldByTwoIsFoundOut(t *testing.T) { plantedIsFoundOut(t, "no-holds") }

// The checks would notice: gateways do not hear what was executed, and have it executed again.
func TestACommandThatIsExecutedTwiceIsFoundOut(t *testing.T) { plantedIsFoundOut(t, "no-effects") }

func plantedIsFoundOut(t *testing.T, fault string) {
	t.Parallel()
	if raceEnabled {
		t.Skip("builds a program, and the race detector has nothing new to see in it")
	}
	c := prepareCluster(t)
	c.program, c.env = plantedProgram(t), []string{"TRELLIS_PLANTED=" + fault}
	for range 3 {
		c.add(t.TempDir())
	}
	c.startAll()
	foundOut(t, 30, func() error {
		w := c.crew()
		killOfTheLeader.do(w)
		return w.over()
	})
}
