//go:build proof

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"trellis/cmd/internal/control"
	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

// testCluster is a lab, and what a test has done to it.
type testCluster struct {
	*clustertest.Lab
	crews        int                         // that there were
	deposed      map[*servertest.Process]int // how often a test has had it lose leadership
	disturbances []string                    // that a test has noticed
}

func startCluster(t *testing.T, size int, dirs ...string) *testCluster {
	t.Helper()
	return &testCluster{Lab: clustertest.StartLab(t, size, dirs...), deposed: map[*servertest.Process]int{}}
}

func prepareCluster(t *testing.T) *testCluster {
	t.Helper()
	return &testCluster{Lab: clustertest.NewLab(t), deposed: map[*servertest.Process]int{}}
}

// status is what a member says of itself, as soon as it gets to it.
func (c *testCluster) status(n *clustertest.Node) (s control.Status) {
	c.T.Helper()
	c.Await(func() (err error) { s, err = c.Status(n); return err })
	return s
}

// workload is clients that work while things happen.
type workload struct {
	*Workload
	c    *testCluster
	stop context.CancelFunc
	done chan error
}

func (c *testCluster) work() *workload {
	ctx, cancel := context.WithCancel(c.Ctx)
	w := &workload{c: c, stop: cancel, done: make(chan error, 1), Workload: &Workload{
		Recorder: NewRecorder(), Tubes: []string{"a", "b", "d", "l"}, Clients: 4, Jobs: 30, Addrs: c.Addrs,
	}}
	go func() { w.done <- w.Run(ctx) }()
	c.T.Cleanup(func() { w.stop() })
	return w
}

// progress waits for so many more replies.
func (w *workload) progress(commands int) {
	w.c.T.Helper()
	if err := w.Recorder.Await(w.c.Ctx, w.Recorder.Answered()+commands); err != nil {
		w.c.T.Fatalf("clients have had no %d more replies: %v", commands, err)
	}
}

// summary tells how many durations there are, and what they are like.
func summary(took []time.Duration) string {
	s := slices.Sorted(slices.Values(took))
	return fmt.Sprintf("%d, median %v, worst %v", len(s), s[len(s)/2], s[len(s)-1])
}

// check ends the work, looks at all jobs, and checks what everybody has seen.
func (w *workload) check() {
	w.c.T.Helper()
	w.stop()
	if err := errors.Join(<-w.done, w.Audit(w.c.Ctx)); err != nil {
		w.c.T.Fatal(err)
	}
	w.c.Agree()
	if err := Check(w.Recorder.History()); err != nil {
		w.c.T.Fatal(err)
	}
}

// A fault is something that happens to a cluster, and what ends it. Between the two the
// cluster has a majority and must serve.
type fault struct {
	name string
	do   func(c *testCluster) (end func())
	slow bool // commands take long meanwhile
	kind bool // the one of its kind that make proof tries: the simulator, in the files sim_*, tries the others more often
}

var faults = []fault{
	{name: "kill -9 of the leader", do: func(c *testCluster) func() {
		n := c.Leader()
		c.Stop(n)
		return func() { c.Start(n) }
	}},
	{name: "kill -9 of a follower", do: func(c *testCluster) func() {
		n := clustertest.AnyOf(c.Others(c.Leader()))
		c.Stop(n)
		return func() { c.Start(n) }
	}},
	{name: "kill -9 of all", kind: true, do: func(c *testCluster) func() {
		for _, n := range c.Nodes {
			c.Stop(n)
		}
		for _, n := range c.Nodes {
			c.Start(n)
		}
		return func() {}
	}},
	{name: "SIGSTOP of the leader", kind: true, do: func(c *testCluster) func() {
		n := c.Leader()
		n.Signal(syscall.SIGSTOP)
		c.Leader(c.Others(n)...)
		return func() { n.Signal(syscall.SIGCONT) }
	}},
	{name: "SIGSTOP of a follower", do: func(c *testCluster) func() {
		n := clustertest.AnyOf(c.Others(c.Leader()))
		n.Signal(syscall.SIGSTOP)
		return func() { n.Signal(syscall.SIGCONT) }
	}},
	{name: "a transfer", do: func(c *testCluster) func() {
		c.Await(func() error { // again if the leader changes meanwhile
			l := c.Leader()
			_, err := c.Ask(l, fmt.Sprintf(`{"op":"transfer","to":%q}`, clustertest.AnyOf(c.Others(l)).Name))
			return err
		})
		return func() {}
	}},
	{name: "the leader is alone", kind: true, do: func(c *testCluster) func() {
		n := c.Leader()
		c.Network.Isolate(n.Name)
		c.Leader(c.Others(n)...)
		return c.Network.Heal
	}},
	{name: "the leader hears nobody", do: func(c *testCluster) func() {
		n := c.Leader()
		for _, o := range c.Others(n) {
			c.Network.Block(o.Name, n.Name)
		}
		c.Leader(c.Others(n)...)
		return c.Network.Heal
	}},
	{name: "nobody hears the leader", do: func(c *testCluster) func() {
		n := c.Leader()
		for _, o := range c.Others(n) {
			c.Network.Block(n.Name, o.Name)
		}
		c.Leader(c.Others(n)...)
		return c.Network.Heal
	}},
	{name: "the leader and a follower do not reach each other", do: func(c *testCluster) func() {
		n := c.Leader()
		c.Network.Cut(n.Name, clustertest.AnyOf(c.Others(n)).Name)
		return c.Network.Heal
	}},
	{name: "a slow network", do: func(c *testCluster) func() {
		for _, a := range c.Nodes {
			for _, b := range c.Others(a) {
				c.Network.Delay(a.Name, b.Name, time.Duration(rand.IntN(10))*time.Millisecond)
			}
		}
		return c.Network.Heal
	}},
	{name: "a slow follower", do: func(c *testCluster) func() {
		l := c.Leader()
		n := clustertest.AnyOf(c.Others(l))
		c.Network.Delay(l.Name, n.Name, 300*time.Millisecond)
		c.Network.Delay(n.Name, l.Name, 300*time.Millisecond)
		return c.Network.Heal
	}},
	{name: "30 % loss", do: func(c *testCluster) func() {
		for _, a := range c.Nodes {
			for _, b := range c.Others(a) {
				c.Network.Lose(a.Name, b.Name, 0.3)
			}
		}
		return c.Network.Heal
	}, slow: true},
	{name: "connections that are reset", do: func(c *testCluster) func() {
		ctx, stop := context.WithCancel(c.Ctx)
		var done sync.WaitGroup
		done.Go(func() {
			for ctx.Err() == nil {
				c.Network.Reset()
				time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			}
		})
		return func() {
			stop()
			done.Wait()
		}
	}},
	{name: "a stopped leader, and its successor killed", kind: true, do: func(c *testCluster) func() {
		n := c.Leader()
		n.Signal(syscall.SIGSTOP)
		next := c.Leader(c.Others(n)...)
		c.Stop(next)
		n.Signal(syscall.SIGCONT)
		return func() { c.Start(next) }
	}},
}

// Whatever happens to a minority, or to all for a moment: nothing acknowledged is lost,
// nothing deleted comes back, no field changes, no reply is older than the command, and in
// the end all nodes have the same jobs.
func TestAClusterIsOneServerUnderFaults(t *testing.T) {
	t.Parallel()
	limit, long := time.ParseDuration(os.Getenv(clustertest.TimeEnv))
	c := startCluster(t, 3)
	met := 0
	const commands = 300
	for began, rounds := time.Now(), 0; rounds == 0 || long == nil && time.Since(began) < limit; rounds++ {
		some := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return long != nil && !f.kind })
		rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		if long != nil && servertest.RaceEnabled {
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

// A follower that has lost its disk and is started as ever is nobody: with it alone a
// leader has no majority.
func TestAWipedNodeDoesNotVote(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	w := c.work()
	w.progress(300)
	leader := c.Leader()
	fs := c.Others(leader)
	c.Stop(fs[0])
	c.Wipe(fs[0])
	c.Start(fs[0])
	w.progress(300)
	c.Stop(fs[1])
	c.Await(func() error {
		if s, err := c.Status(leader); err != nil || s.Serves {
			return fmt.Errorf("%s alone serves: %v", leader.Name, err)
		}
		if s, err := c.Status(fs[0]); err == nil && s.Serves {
			return fmt.Errorf("%s serves without its disk", fs[0].Name)
		}
		return nil
	})
	c.Start(fs[1])
	w.progress(300)
	w.stop()
	if err := errors.Join(<-w.done, w.Audit(c.Ctx)); err != nil {
		t.Fatal(err)
	}
	c.Nodes = []*clustertest.Node{leader, fs[1]}
	c.Agree()
	if err := Check(w.Recorder.History()); err != nil {
		t.Fatal(err)
	}
}

// How long nobody serves when the leader is killed: from the kill to the first put that is
// acknowledged to a client that tries the addresses in turn.
func TestAnotherNodeServesWhenTheLeaderIsKilled(t *testing.T) {
	if os.Getenv(clustertest.TimeEnv) == "" {
		t.Skip("measures: make cluster runs it")
	}
	const kills = 50
	c := startCluster(t, 3)
	var took []time.Duration
	for len(took) < kills {
		// Each command without a reply may have been executed at any time since: with many of
		// them it takes long to find an order.
		w := c.work()
		client := w.Recorder.NewClient("c", c.Addrs)
		for range 2 {
			w.progress(300)
			n := c.Leader()
			took = append(took, c.replace(n, client))
			c.Start(n)
		}
		client.Close()
		w.check()
	}
	t.Logf("kills of the leader, to the next put: %s", summary(took))
}

// replace kills the leader, and tells how long it takes until another one has acknowledged a put.
func (c *testCluster) replace(leader *clustertest.Node, client *Client) time.Duration {
	c.T.Helper()
	began := time.Now()
	c.Stop(leader)
	for acknowledged := false; !acknowledged; {
		if err := client.Connect(c.Ctx); err != nil {
			c.T.Fatal(err)
		}
		_, err := client.Put(0, 0, 10)
		acknowledged = err == nil
		if err != nil && !errors.Is(err, ErrLost) {
			c.T.Fatal(err)
		}
	}
	return time.Since(began)
}
