//go:build proof

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	peers "trellis/binlog/replica/wire"
	"trellis/binlog/replica/wire/wiretest"
	"trellis/cmd/trellisd/internal/clustertest"
)

// clusterTime is the environment variable with how long the tests of a cluster under
// faults take. Without it they do each fault once.
const clusterTime = "CLUSTER"

// testCluster is some nodes on this machine, with a network between them.
type testCluster struct {
	t       *testing.T
	ctx     context.Context
	network *clustertest.Network
	nodes   []*clusterNode
	named   int // nodes that there were

	mu      sync.Mutex
	clients []string // guarded by mu; addresses that clients try

	launched []*process // for all nodes
	crews    int        // that there were

	deposed      map[*process]int // how often a test has had it lose leadership
	disturbances []string         // that a test has noticed

	program string   // that the nodes run; binary if it is ""
	env     []string // of the nodes, beside the test's own
}

type clusterNode struct {
	*process // nil if it does not run
	name     string
	addr     string // of its peers' port, for the others
	listens  string // where it listens for them
	client   string // address for clients
	dir      string
}

// clusterStatus is what a node tells of itself.
type clusterStatus struct {
	Serves   bool
	Leads    bool
	Snapshot uint64
	Members  []struct {
		Name  string
		Voter bool
	}
	Term        uint64
	Commit      uint64
	Applied     uint64
	First, Last uint64
	Digest      json.RawMessage // of all jobs

	Contradictions uint64
}

// startCluster starts a new cluster and waits until it serves. dirs are where the nodes
// have their directories; those that are not given have temporary ones.
func startCluster(t *testing.T, size int, dirs ...string) *testCluster {
	t.Helper()
	c := prepareCluster(t)
	for i := range size {
		dir := t.TempDir()
		if i < len(dirs) {
			dir = dirs[i]
		}
		c.add(dir)
	}
	c.startAll()
	return c
}

// prepareCluster makes a cluster without nodes.
func prepareCluster(t *testing.T) *testCluster {
	t.Helper()
	// A test that hangs ends with what was waited for.
	limit := 15 * patience
	if d, err := time.ParseDuration(os.Getenv(clusterTime)); err == nil {
		limit += 2 * d
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	c := &testCluster{t: t, ctx: ctx, network: clustertest.NewNetwork(), deposed: map[*process]int{}}
	t.Cleanup(c.network.Close)
	return c
}

// add adds a node, which does not run yet.
func (c *testCluster) add(parent string) *clusterNode {
	c.t.Helper()
	c.named++
	n := &clusterNode{name: fmt.Sprint("n", c.named), dir: filepath.Join(parent, "data"), client: wiretest.ReservedAddr(c.t)}
	var err error
	if n.addr, err = c.network.Add(n.name); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Mkdir(n.dir, 0o700); err != nil {
		c.t.Fatal(err)
	}
	c.nodes = append(c.nodes, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = append(c.clients, n.client)
	return n
}

// startAll starts all nodes and waits until one serves.
func (c *testCluster) startAll() {
	c.t.Helper()
	for _, n := range c.nodes {
		c.start(n)
	}
	c.leader()
	for _, n := range c.nodes { // the others elect a leader before the last one knows that it is a member
		c.await(func() error { _, err := c.status(n); return err })
	}
}

// start starts a node's process and waits until it listens for its peers.
func (c *testCluster) start(n *clusterNode) {
	t := c.t
	t.Helper()
	var all []string
	for _, x := range c.nodes {
		all = append(all, x.name+"="+x.addr)
	}
	_, port, err := net.SplitHostPort(n.client)
	if err != nil {
		t.Fatal(err)
	}
	program := binary
	if c.program != "" {
		program = c.program
	}
	cmd := exec.Command(program, "-l127.0.0.1", "-p"+port, "-V", "--log-format=json", "-b", n.dir,
		"--node", n.name+"="+n.addr, "--cluster", strings.Join(all, ","), "--cluster-listen=127.0.0.1:0")
	cmd.Env = append(os.Environ(), c.env...)
	n.process = launchCommand(t, cmd)
	c.launched = append(c.launched, n.process)
	n.waitText(`"listening for peers"`)
	for _, l := range n.log() {
		var record struct{ Msg, Addr string }
		if json.Unmarshal([]byte(l), &record) == nil && record.Msg == "listening for peers" {
			n.listens = record.Addr
		}
	}
	c.network.Runs(n.name, n.listens, n.cmd.Process.Pid)
}

// stop ends a node's process at once.
func (c *testCluster) stop(n *clusterNode) {
	n.kill()
	c.network.Runs(n.name, "", 0)
	n.process = nil
}

// wipe empties the directory of a node that does not run.
func (c *testCluster) wipe(n *clusterNode) {
	c.t.Helper()
	if err := errors.Join(os.RemoveAll(n.dir), os.Mkdir(n.dir, 0o700)); err != nil {
		c.t.Fatal(err)
	}
}

// status asks a node, past the network between the nodes.
func (c *testCluster) status(n *clusterNode) (clusterStatus, error) {
	return c.ask(n, `{"op":"status"}`)
}

func (c *testCluster) ask(n *clusterNode, request string) (s clusterStatus, err error) {
	if n.process == nil {
		return s, errors.New("it does not run")
	}
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	b, err := peers.Call(ctx, peers.ClientConfig{}, n.listens, []byte(request))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// await waits until something is so. What is not so is told when the test's time is over.
func (c *testCluster) await(so func() error) {
	c.t.Helper()
	for {
		err := so()
		if err == nil {
			return
		}
		select {
		case <-c.ctx.Done():
			c.t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// leader waits until a node of these serves, all if there are none, and returns it.
func (c *testCluster) leader(among ...*clusterNode) (leader *clusterNode) {
	c.t.Helper()
	if len(among) == 0 {
		among = c.nodes
	}
	c.await(func() error {
		var why error
		term := uint64(0)
		leader = nil
		for _, n := range among {
			s, err := c.status(n)
			if err != nil {
				why = errors.Join(why, fmt.Errorf("%s: %w", n.name, err))
			} else if s.Serves && s.Term > term {
				leader, term = n, s.Term
			}
		}
		if leader == nil {
			return errors.Join(errors.New("no node serves"), why)
		}
		return nil
	})
	return leader
}

// others are all nodes but some.
func (c *testCluster) others(but ...*clusterNode) []*clusterNode {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(n *clusterNode) bool { return slices.Contains(but, n) })
}

// agree waits until all nodes have applied the same entries, and compares their jobs.
func (c *testCluster) agree() {
	c.t.Helper()
	var all []clusterStatus
	c.await(func() error {
		all = all[:0]
		for _, n := range c.nodes {
			s, err := c.ask(n, `{"op":"status","digest":true}`)
			if err != nil {
				return fmt.Errorf("%s: %w", n.name, err)
			}
			if all = append(all, s); s.Applied != s.Last || s.Applied != all[0].Applied {
				return fmt.Errorf("%s has applied %d of %d, %s %d", n.name, s.Applied, s.Last, c.nodes[0].name, all[0].Applied)
			}
		}
		return nil
	})
	for i, s := range all {
		if len(s.Digest) == 0 || !bytes.Equal(s.Digest, all[0].Digest) {
			c.t.Fatalf("after entry %d %s has the jobs %s, and %s %s", s.Applied, c.nodes[0].name, all[0].Digest, c.nodes[i].name, s.Digest)
		}
		if s.Contradictions != 0 {
			c.t.Errorf("%s has met %d contradictions between records of reservations", c.nodes[i].name, s.Contradictions)
		}
	}
}

// addrs are the addresses that clients try: those of all nodes that there were.
func (c *testCluster) addrs() (addrs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.clients)
}

// workload is clients that work while things happen.
type workload struct {
	*clustertest.Workload
	c    *testCluster
	stop context.CancelFunc
	done chan error
}

func (c *testCluster) work() *workload {
	ctx, cancel := context.WithCancel(c.ctx)
	w := &workload{c: c, stop: cancel, done: make(chan error, 1), Workload: &clustertest.Workload{
		Recorder: clustertest.NewRecorder(), Tubes: []string{"a", "b", "d"}, Clients: 4, Jobs: 30, Addrs: c.addrs,
	}}
	go func() { w.done <- w.Run(ctx) }()
	c.t.Cleanup(func() { w.stop() })
	return w
}

// progress waits for so many more replies.
func (w *workload) progress(commands int) {
	w.c.t.Helper()
	if err := w.Recorder.Await(w.c.ctx, w.Recorder.Answered()+commands); err != nil {
		w.c.t.Fatalf("clients have had no %d more replies: %v", commands, err)
	}
}

// served waits for one more reply, and tells how long that took.
func (w *workload) served() time.Duration {
	w.c.t.Helper()
	began := time.Now()
	w.progress(1)
	return time.Since(began)
}

// summary tells how many durations there are, and what they are like.
func summary(took []time.Duration) string {
	s := slices.Sorted(slices.Values(took))
	return fmt.Sprintf("%d, median %v, worst %v", len(s), s[len(s)/2], s[len(s)-1])
}

// check ends the work, looks at all jobs, and checks what everybody has seen.
func (w *workload) check() {
	w.c.t.Helper()
	w.stop()
	if err := errors.Join(<-w.done, w.Audit(w.c.ctx)); err != nil {
		w.c.t.Fatal(err)
	}
	w.c.agree()
	if err := clustertest.Check(w.Recorder.History()); err != nil {
		w.c.t.Fatal(err)
	}
}

// A fault is something that happens to a cluster, and what ends it. Between the two the
// cluster has a majority and must serve.
type fault struct {
	name string
	do   func(c *testCluster) (end func())
	slow bool // commands take long meanwhile
}

var faults = []fault{
	{name: "kill -9 of the leader", do: func(c *testCluster) func() {
		n := c.leader()
		c.stop(n)
		return func() { c.start(n) }
	}},
	{name: "kill -9 of a follower", do: func(c *testCluster) func() {
		n := anyOf(c.others(c.leader()))
		c.stop(n)
		return func() { c.start(n) }
	}},
	{name: "kill -9 of all", do: func(c *testCluster) func() {
		for _, n := range c.nodes {
			c.stop(n)
		}
		for _, n := range c.nodes {
			c.start(n)
		}
		return func() {}
	}},
	{name: "SIGSTOP of the leader", do: func(c *testCluster) func() {
		n := c.leader()
		n.signal(syscall.SIGSTOP)
		c.leader(c.others(n)...)
		return func() { n.signal(syscall.SIGCONT) }
	}},
	{name: "SIGSTOP of a follower", do: func(c *testCluster) func() {
		n := anyOf(c.others(c.leader()))
		n.signal(syscall.SIGSTOP)
		return func() { n.signal(syscall.SIGCONT) }
	}},
	{name: "a transfer", do: func(c *testCluster) func() {
		c.await(func() error { // again if the leader changes meanwhile
			l := c.leader()
			_, err := c.ask(l, fmt.Sprintf(`{"op":"transfer","to":%q}`, anyOf(c.others(l)).name))
			return err
		})
		return func() {}
	}},
	{name: "the leader is alone", do: func(c *testCluster) func() {
		n := c.leader()
		c.network.Isolate(n.name)
		c.leader(c.others(n)...)
		return c.network.Heal
	}},
	{name: "the leader hears nobody", do: func(c *testCluster) func() {
		n := c.leader()
		for _, o := range c.others(n) {
			c.network.Block(o.name, n.name)
		}
		c.leader(c.others(n)...)
		return c.network.Heal
	}},
	{name: "nobody hears the leader", do: func(c *testCluster) func() {
		n := c.leader()
		for _, o := range c.others(n) {
			c.network.Block(n.name, o.name)
		}
		c.leader(c.others(n)...)
		return c.network.Heal
	}},
	{name: "the leader and a follower do not reach each other", do: func(c *testCluster) func() {
		n := c.leader()
		c.network.Cut(n.name, anyOf(c.others(n)).name)
		return c.network.Heal
	}},
	{name: "a slow network", do: func(c *testCluster) func() {
		for _, a := range c.nodes {
			for _, b := range c.others(a) {
				c.network.Delay(a.name, b.name, time.Duration(rand.IntN(10))*time.Millisecond)
			}
		}
		return c.network.Heal
	}},
	{name: "a slow follower", do: func(c *testCluster) func() {
		l := c.leader()
		n := anyOf(c.others(l))
		c.network.Delay(l.name, n.name, 300*time.Millisecond)
		c.network.Delay(n.name, l.name, 300*time.Millisecond)
		return c.network.Heal
	}},
	{name: "30 % loss", do: func(c *testCluster) func() {
		for _, a := range c.nodes {
			for _, b := range c.others(a) {
				c.network.Lose(a.name, b.name, 0.3)
			}
		}
		return c.network.Heal
	}, slow: true},
	{name: "connections that are reset", do: func(c *testCluster) func() {
		ctx, stop := context.WithCancel(c.ctx)
		var done sync.WaitGroup
		done.Go(func() {
			for ctx.Err() == nil {
				c.network.Reset()
				time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			}
		})
		return func() {
			stop()
			done.Wait()
		}
	}},
	{name: "a stopped leader, and its successor killed", do: func(c *testCluster) func() {
		n := c.leader()
		n.signal(syscall.SIGSTOP)
		next := c.leader(c.others(n)...)
		c.stop(next)
		n.signal(syscall.SIGCONT)
		return func() { c.start(next) }
	}},
}

func anyOf(ns []*clusterNode) *clusterNode { return ns[rand.IntN(len(ns))] }

// Whatever happens to a minority, or to all for a moment: nothing acknowledged is lost,
// nothing deleted comes back, no field changes, no reply is older than the command, and in
// the end all nodes have the same jobs.
func TestAClusterIsOneServerUnderFaults(t *testing.T) {
	t.Parallel()
	limit, long := time.ParseDuration(os.Getenv(clusterTime))
	c := startCluster(t, 3)
	met := 0
	const commands = 300
	for began, rounds := time.Now(), 0; rounds == 0 || long == nil && time.Since(began) < limit; rounds++ {
		some := slices.Clone(faults)
		rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		if long != nil && raceEnabled {
			some = some[:3]
		}
		// Each command without a reply may have been executed at any time since: with many of
		// them it takes long to find an order.
		for few := range slices.Chunk(some, 4) {
			w := c.work()
			w.progress(commands)
			for _, f := range few {
				met++
				t.Log(f.name)
				end := f.do(c)
				if f.slow {
					w.progress(commands / 10)
				} else {
					w.progress(commands)
				}
				end()
				w.progress(commands)
			}
			w.check()
		}
	}
	t.Logf("%d faults were met", met)
}

// Five members serve while two of them are gone, of whom one led, and the next leader after
// it, too. When they are back, all have the same jobs.
func TestAClusterOfFiveServesWithoutTwo(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 5)
	w := c.work()
	w.progress(200)
	var gone []*clusterNode
	for range 2 {
		n := c.leader(c.others(gone...)...)
		c.stop(n)
		gone = append(gone, n)
		w.progress(200)
	}
	for _, n := range gone {
		c.start(n)
	}
	w.progress(200)
	w.check()
}

// A follower that has lost its disk and is started as ever is nobody: with it alone a
// leader has no majority.
func TestAWipedNodeDoesNotVote(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	w := c.work()
	w.progress(300)
	leader := c.leader()
	fs := c.others(leader)
	c.stop(fs[0])
	c.wipe(fs[0])
	c.start(fs[0])
	w.progress(300)
	c.stop(fs[1])
	c.await(func() error {
		if s, err := c.status(leader); err != nil || s.Serves {
			return fmt.Errorf("%s alone serves: %v", leader.name, err)
		}
		if s, err := c.status(fs[0]); err == nil && s.Serves {
			return fmt.Errorf("%s serves without its disk", fs[0].name)
		}
		return nil
	})
	c.start(fs[1])
	w.progress(300)
	w.stop()
	if err := errors.Join(<-w.done, w.Audit(c.ctx)); err != nil {
		t.Fatal(err)
	}
	c.nodes = []*clusterNode{leader, fs[1]}
	c.agree()
	if err := clustertest.Check(w.Recorder.History()); err != nil {
		t.Fatal(err)
	}
}

// The crash test's books over a cluster whose leader is killed or stopped again
// and again: what clients were told that it has, the next leader has.
func TestNothingAcknowledgedIsLostByAClusterWhoseLeaderGoes(t *testing.T) {
	t.Parallel()
	limit, long := time.ParseDuration(os.Getenv(clusterTime))
	c := startCluster(t, 3)
	c.awaitTags()
	books := newCrash(t)
	goes := []fault{faults[0], faults[3]} // a transfer ends no connection: see package clustertest's Crew
	for began, round := time.Now(), 0; round < len(goes) || long == nil && time.Since(began) < limit; round++ {
		s := c.audit(books)
		f := goes[round%len(goes)]
		over := make(chan error, 1)
		go func() { over <- books.work(s) }()
		time.Sleep(time.Duration(rand.Int64N(int64(150 * time.Millisecond)))) // at any moment
		end := f.do(c)
		end() // a leader that was stopped or cut off ends its connections when it is back
		if err := <-over; err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
	}
	books.over = true // jobs that expire while members are compared would make a difference
	c.audit(books)
	c.agree()
	t.Logf("%d commands acknowledged, %d not, of which %d had been done", books.acked, books.unacked, books.done)
}

// awaitTags waits until all members are known to read records of jobs with groups. The next
// leader knows that as well: it is on record, before the job.
func (c *testCluster) awaitTags() {
	p := &producer{c: c}
	c.await(func() error {
		if got := p.ask("put 0 0 60 1 grp:first\r\nx"); len(got) == 0 || !strings.HasPrefix(got[0], "INSERTED ") {
			return fmt.Errorf("the reply to a put with a tag is %q", got)
		}
		return nil
	})
	c.await(func() error {
		if got := p.ask("flush-tube default"); len(got) == 0 {
			return errors.New("no reply to flush-tube")
		}
		return nil
	})
}

// audit compares the leader's jobs with the books, and returns the leader. One that loses its
// leadership meanwhile, as on a busy machine, is followed by the next: so the first audit is given
// up at any moment, as if that had happened.
func (c *testCluster) audit(books *crash) (s *server) {
	c.t.Helper()
	limit := time.Duration(rand.Int64N(int64(50 * time.Millisecond)))
	c.await(func() error {
		n := c.leader()
		s = &server{process: n.process, addrs: []net.Addr{address{"tcp", n.client}}}
		err := books.audit(s, limit)
		limit = 5 * patience
		return err
	})
	return s
}

// How long nobody serves when the leader is killed: from the kill to the first put that is
// acknowledged to a client that tries the addresses in turn.
func TestAnotherNodeServesWhenTheLeaderIsKilled(t *testing.T) {
	kills := 4
	if os.Getenv(clusterTime) != "" {
		kills = 50
	} else {
		t.Parallel()
	}
	c := startCluster(t, 3)
	var took []time.Duration
	for len(took) < kills {
		// Each command without a reply may have been executed at any time since: with many of
		// them it takes long to find an order.
		w := c.work()
		client := w.Recorder.NewClient("c", c.addrs)
		for range 2 {
			w.progress(300)
			n := c.leader()
			took = append(took, c.replace(n, client))
			c.start(n)
		}
		client.Close()
		w.check()
	}
	t.Logf("kills of the leader, to the next put: %s", summary(took))
}

// replace kills the leader, and tells how long it takes until another one has acknowledged a put.
func (c *testCluster) replace(leader *clusterNode, client *clustertest.Client) time.Duration {
	c.t.Helper()
	began := time.Now()
	c.stop(leader)
	for acknowledged := false; !acknowledged; {
		if err := client.Connect(c.ctx); err != nil {
			c.t.Fatal(err)
		}
		_, err := client.Put(0, 0, 10)
		acknowledged = err == nil
		if err != nil && !errors.Is(err, clustertest.ErrLost) {
			c.t.Fatal(err)
		}
	}
	return time.Since(began)
}
