//go:build proof

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

// crew is stock clients at all members of a cluster while its leaders go.
type crew struct {
	*Crew
	c     *testCluster
	posts map[*clustertest.Node]*Post
	spans []survived
	stop  context.CancelFunc
	done  chan error
}

// survived is when something happened, and who was not to notice.
type survived struct {
	from, to time.Duration
	posts    []*Post
}

// crew has clients work from the moment at which all members serve.
func (c *testCluster) crew() *crew {
	c.T.Helper()
	w := &crew{c: c, posts: map[*clustertest.Node]*Post{}, done: make(chan error, 1)}
	var all []*Post
	for _, n := range c.Nodes {
		c.AwaitServed(n)
		w.posts[n] = &Post{Name: n.Name, Addr: n.Client}
		all = append(all, w.posts[n])
	}
	c.crews++
	w.Crew = NewCrew(fmt.Sprint("crew-", c.crews), all...)
	ctx, cancel := context.WithCancel(c.Ctx)
	w.stop = cancel
	go func() { w.done <- w.Run(ctx) }()
	c.T.Cleanup(cancel)
	return w
}

// progress waits for so many more replies.
func (w *crew) progress(commands int) {
	w.c.T.Helper()
	if err := w.Recorder.Await(w.c.Ctx, w.Recorder.Answered()+commands); err != nil {
		w.c.T.Fatalf("clients have had no %d more replies: %v", commands, err)
	}
}

// over ends the work and checks what everybody has seen.
func (w *crew) over() error {
	w.stop()
	if err := errors.Join(<-w.done, w.Audit(w.c.Ctx)); err != nil {
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
func (w *crew) during(do func(), but ...*clustertest.Node) {
	w.c.T.Helper()
	w.progress(100)
	s := survived{from: w.Now()}
	for _, n := range w.c.Others(but...) {
		s.posts = append(s.posts, w.posts[n])
	}
	do()
	w.progress(100)
	s.to = w.Now()
	w.spans = append(w.spans, s)
}

// without does something to members that may end their clients' connections. These are back behind end.
func (w *crew) without(do, end func(), members ...*clustertest.Node) {
	w.c.T.Helper()
	for _, n := range members {
		w.posts[n].Goes()
	}
	w.during(do, members...)
	end()
	for _, n := range members {
		w.c.AwaitServed(n)
		w.posts[n].Comes()
	}
}

// elects waits until one of these leads. It notes when that takes so long that gateways give up.
func (w *crew) elects(among ...*clustertest.Node) {
	w.c.T.Helper()
	began := time.Now()
	w.c.Leader(among...)
	if took := time.Since(began); took > longElection {
		w.c.disturbances = append(w.c.disturbances, fmt.Sprintf("nobody led for %v", took))
	}
}

// longElection is some seconds less than a gateway's patience.
const longElection = 3 * time.Second

var killOfTheLeader = change{"kill -9 of the leader", func(w *crew) {
	n := w.c.Leader()
	w.without(func() {
		w.c.Stop(n)
		w.elects(w.c.Others(n)...)
	}, func() { w.c.Start(n) }, n)
}}

var killOfAGateway = change{"kill -9 of a gateway", func(w *crew) {
	n := clustertest.AnyOf(w.c.Others(w.c.Leader()))
	w.without(func() { w.c.Stop(n) }, func() { w.c.Start(n) }, n)
}}

// whom says whom a change is about: the leader, or another member.
func whom(leads bool) string {
	if leads {
		return "the leader"
	}
	return "a gateway"
}

// member is the leader, or another one.
func (w *crew) member(leads bool) *clustertest.Node {
	n := w.c.Leader()
	if !leads {
		n = clustertest.AnyOf(w.c.Others(n))
	}
	return n
}

// deposes is member for a change by which a leader may lose its leadership.
func (w *crew) deposes(leads bool) *clustertest.Node {
	n := w.member(leads)
	if leads {
		w.c.deposed[n.Process]++
	}
	return n
}

// restartOf restarts the leader, or another member, as an upgrade does.
func restartOf(leads bool) change {
	return change{"a restart of " + whom(leads), func(w *crew) {
		n := w.member(leads)
		w.without(func() {
			n.Signal(syscall.SIGTERM)
			n.Wait()
			w.c.Network.Runs(n.Name, "", 0)
			n.Process = nil
			w.elects(w.c.Others(n)...)
		}, func() { w.c.Start(n) }, n)
	}}
}

var transfer = change{"a transfer", func(w *crew) {
	w.during(func() {
		w.c.Await(func() error { // again if the leader changes meanwhile
			l := w.c.Leader()
			_, err := w.c.Ask(l, fmt.Sprintf(`{"op":"transfer","to":%q}`, clustertest.AnyOf(w.c.Others(l)).Name))
			return err
		})
	})
}}

// stopOf stops the leader, or another member, for a while.
func stopOf(leads bool, d time.Duration) change {
	return change{fmt.Sprintf("SIGSTOP of %s for %v", whom(leads), d), func(w *crew) {
		n := w.deposes(leads)
		w.without(func() {
			n.Signal(syscall.SIGSTOP)
			time.Sleep(d)
			n.Signal(syscall.SIGCONT)
			w.elects()
		}, func() {}, n)
	}}
}

// partitionOf cuts a member off, in one of several ways, until others have a leader.
func partitionOf(leads bool, name string, cut func(c *testCluster, n *clustertest.Node)) change {
	return change{name, func(w *crew) {
		n := w.deposes(leads)
		w.without(func() {
			cut(w.c, n)
			w.elects(w.c.Others(n)...)
		}, w.c.Network.Heal, n)
	}}
}

var partitions = []change{
	partitionOf(true, "the leader is alone", func(c *testCluster, n *clustertest.Node) { c.Network.Isolate(n.Name) }),
	partitionOf(false, "a gateway is alone", func(c *testCluster, n *clustertest.Node) { c.Network.Isolate(n.Name) }),
	partitionOf(true, "the leader hears nobody", func(c *testCluster, n *clustertest.Node) {
		for _, o := range c.Others(n) {
			c.Network.Block(o.Name, n.Name)
		}
	}),
	partitionOf(true, "nobody hears the leader", func(c *testCluster, n *clustertest.Node) {
		for _, o := range c.Others(n) {
			c.Network.Block(n.Name, o.Name)
		}
	}),
	partitionOf(false, "a gateway hears nobody", func(c *testCluster, n *clustertest.Node) {
		for _, o := range c.Others(n) {
			c.Network.Block(o.Name, n.Name)
		}
	}),
	{"connections between members are reset", func(w *crew) {
		w.during(func() {
			for range 5 {
				w.c.Network.Reset()
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
	c.T.Helper()
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
		c.T.Logf("%q: %s", names, w.Summary())
		why := c.disturbed()[before:]
		for _, b := range w.Broken() {
			if b.Silent > stall {
				why = append(why, b.String())
			}
		}
		if err != nil && len(why) > 0 && disturbed < servertest.Attempts {
			disturbed++
			c.T.Logf("once more, for %q: %v", why, err)
			continue
		}
		if err != nil {
			c.T.Fatal(err)
		}
		c.Agree()
		met += few
		for _, s := range w.spans {
			all = append(all, w.Longest(s.from, s.to, s.posts...))
		}
	}
	c.T.Logf("longest wait of a command in each change: %s", summary(all))
}

// disturbed tells which leaderships have ended without the test's doing.
func (c *testCluster) disturbed() (why []string) {
	for _, p := range c.Launched {
		meant := c.deposed[p]
		for _, l := range p.Log() {
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
	if os.Getenv(clustertest.TimeEnv) != "" {
		return long
	}
	t.Parallel()
	if servertest.RaceEnabled {
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
			first := c.Leader()
			second := first
			w.without(func() {
				c.Stop(first)
				w.elects(c.Others(first)...)
				second = c.Leader(c.Others(first)...)
				w.posts[second].Goes()
				time.Sleep(time.Duration(rand.Int64N(int64(50 * time.Millisecond)))) // at any moment
				c.Stop(second)
				w.elects(c.Others(first, second)...)
			}, func() {
				c.Start(first)
				c.Start(second)
				c.AwaitServed(second)
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
	for _, n := range c.Nodes {
		c.AwaitServed(n)
	}
	var g *clustertest.Node
	var holds, waits *producer
	var id, tube string    // of what the one holds, and where the other waits
	c.Await(func() error { // again if the leader changes meanwhile
		g = clustertest.AnyOf(c.Others(c.Leader()))
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
	g.Signal(syscall.SIGSTOP)
	c.Await(func() error { return stands(g.Process) })
	if _, err := io.WriteString(holds.conn, "delete "+id+"\r\n"); err != nil {
		t.Fatal(err)
	}
	other := &producer{c: c, at: c.Leader(c.Others(g)...)}
	c.Await(func() error { // of the first one the gateway would tell its client
		if got := other.ask("use "+tube, "put 0 0 1000 1\r\nx"); len(got) < 2 || !strings.HasPrefix(got[1], "INSERTED ") {
			return fmt.Errorf("a put is answered %q", got)
		}
		return nil
	})
	for _, reserve := range []string{"reserve-with-timeout 1", "reserve-job " + id} {
		c.Await(func() error {
			_ = other.ask("watch "+tube, "ignore default")
			if got := other.reply(reserve); !strings.HasPrefix(got, "RESERVED ") {
				return fmt.Errorf("%s is answered %q", reserve, got)
			}
			return nil
		})
	}
	g.Signal(syscall.SIGCONT)
	for _, p := range []*producer{holds, waits} {
		if err := p.conn.SetDeadline(time.Now().Add(servertest.Patience)); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(p.in); len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a client of the gateway is told %q, %v", got, err)
		}
	}
	c.Await(func() error {
		got := other.reply("delete " + id)
		if got != "DELETED" {
			_ = other.reply("reserve-job " + id) // it was reset meanwhile
			return fmt.Errorf("who has the job is told %q when it deletes it", got)
		}
		return nil
	})
	for _, n := range c.Nodes {
		c.AwaitServed(n)
	}
	c.Agree()
}

// stands reports whether all of a process has stopped, which it does some time after SIGSTOP.
func stands(p *servertest.Process) error {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Cmd.Process.Pid))
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
	c.Program = earlier
	for range 3 {
		c.Add(t.TempDir())
	}
	c.StartAll()
	w := c.work()
	w.progress(300)
	c.Program = ""
	old := c.Leader()
	for _, n := range c.Others(old) {
		c.upgrade(n)
		w.progress(200)
	}
	c.Await(func() error { // it may not lead by now
		l := c.Leader()
		if l != old {
			return nil
		}
		_, err := c.Ask(l, fmt.Sprintf(`{"op":"transfer","to":%q}`, clustertest.AnyOf(c.Others(l)).Name))
		return err
	})
	w.progress(200)
	c.upgrade(old)
	w.progress(300)
	w.check()
	c.meet(4, inTurn([]change{killOfTheLeader, transfer}))
}

// upgrade restarts a member, with the program that is to run from now on, and waits until it has what the others had.
func (c *testCluster) upgrade(n *clustertest.Node) {
	c.T.Helper()
	n.Signal(syscall.SIGTERM)
	if code := n.Wait(); code != servertest.ExitOK {
		c.T.Errorf("%s has ended with %d", n.Name, code)
	}
	c.Network.Runs(n.Name, "", 0)
	n.Process = nil
	l := c.status(c.Leader(c.Others(n)...))
	c.Start(n)
	c.Await(func() error {
		s, err := c.Status(n)
		if err == nil && s.Applied < l.Commit {
			err = fmt.Errorf("%s has applied %d of %d", n.Name, s.Applied, l.Commit)
		}
		return err
	})
}

// The checks would notice: the next leader knows of no reservations, and hands out what is held.
func TestAJobThatIsHeldByTwoIsFoundOut(t *testing.T) {
	t.Parallel()
	if servertest.RaceEnabled {
		t.Skip("builds a program, and the race detector has nothing new to see in it")
	}
	c := prepareCluster(t)
	c.Program, c.Env = clustertest.PlantedProgram(t), []string{"TRELLIS_PLANTED=no-holds"}
	for range 3 {
		c.Add(t.TempDir())
	}
	c.StartAll()
	const attempts = 30 // a machine that is busy may not let clients hold jobs at the right moment in each of them
	for n := range attempts {
		w := c.crew()
		killOfTheLeader.do(w)
		if err := w.over(); err != nil {
			t.Logf("found out in attempt %d: %v", n+1, err)
			return
		}
	}
	t.Error("not found out")
}
