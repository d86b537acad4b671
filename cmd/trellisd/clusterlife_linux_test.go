package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	peers "trellis/binlog/replica/wire"
	"trellis/cmd/trellisd/internal/clustertest"
)

// A leader that is cut off from the others acknowledges nothing, hands out nothing, and
// says nothing of what there is. It comes back as a standby by itself.
func TestALeaderThatIsAloneAnswersNobody(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	l := c.leader()
	producer := dial(t, address{"tcp", l.client})
	producer.send("put 0 0 60 1", "x", "put 0 0 60 1", "y")
	producer.want("INSERTED 1", "INSERTED 2")
	commands := []string{"put 0 0 60 1\r\nz", "reserve", "reserve-with-timeout 0", "delete 1", "peek 1", "peek-ready", "stats-job 1", "stats", "list-tubes"}
	var asking []*client
	for range commands {
		a := dial(t, address{"tcp", l.client})
		a.send("use default") // needs no other node: the connection is there
		a.want("USING default")
		asking = append(asking, a)
	}
	c.network.Isolate(l.name)
	for i, a := range asking {
		a.send(commands[i])
	}
	for i, a := range asking {
		if b, err := io.ReadAll(a.in); len(b) > 0 {
			t.Errorf("%q was answered %q, %v", commands[i], b, err)
		}
	}
	next := c.leader(c.others(l)...)
	c.await(func() error {
		if s, err := c.status(l); err != nil || s.Leads {
			return fmt.Errorf("%s leads alone: %v", l.name, err)
		}
		return nil
	})
	if conn, err := net.Dial("tcp", l.client); err == nil {
		_ = conn.Close()
		t.Error("the port for clients of a member that does not lead is open")
	}
	worker := dial(t, address{"tcp", next.client})
	worker.send("reserve-job 1", "reserve-job 2", "delete 2", "peek-ready", "put 0 0 60 1", "w")
	worker.want("RESERVED 1 1", "x", "RESERVED 2 1", "y", "DELETED", "NOT_FOUND")
	if line := worker.line(); !strings.HasPrefix(line, "INSERTED ") {
		t.Error(line)
	}
	c.network.Heal()
	c.agree()
}

// The members change while clients work: a node is added and takes over, and two of those
// that have founded the cluster leave it.
func TestMembersChangeUnderLoad(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	w := c.work()
	w.progress(200)
	added := c.add(t.TempDir())
	c.start(added)
	c.tell(fmt.Sprintf(`{"op":"add","node":"%s=%s"}`, added.name, added.addr))
	w.progress(200)
	c.tell(fmt.Sprintf(`{"op":"transfer","to":%q}`, added.name))
	w.progress(200)
	for range 2 {
		gone := anyOf(c.others(added))
		c.tell(fmt.Sprintf(`{"op":"remove","node":%q}`, gone.name))
		if code := gone.wait(); code != exitFailed {
			t.Errorf("%s has ended with %d", gone.name, code)
		}
		c.network.Runs(gone.name, "", 0)
		c.nodes = c.others(gone)
		w.progress(200)
	}
	w.check()
}

// tell has the leader, whoever that is, do something.
func (c *testCluster) tell(request string) {
	c.t.Helper()
	c.await(func() error {
		if _, err := c.ask(c.leader(), request); err != nil {
			return fmt.Errorf("%s: %w", request, err)
		}
		return nil
	})
}

// jobsToCatchUp is how many jobs a follower gets by snapshot.
func jobsToCatchUp() int {
	if os.Getenv(clusterTime) != "" {
		return 1_000_000
	}
	return 20_000
}

// A follower that was away for longer than the log goes back gets a snapshot, and the
// leader serves meanwhile.
func TestAFollowerCatchesUpBySnapshotWhileTheLeaderServes(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	l := c.leader()
	away := anyOf(c.others(l))
	at, err := c.status(away)
	if err != nil {
		t.Fatal(err)
	}
	c.stop(away)
	client := dial(t, address{"tcp", l.client})
	const batch = 500
	body := strings.Repeat("x", 200)
	for range jobsToCatchUp() / batch {
		client.renew()
		client.send(strings.TrimSuffix(strings.Repeat("put 5 0 60 200\r\n"+body+"\r\n", batch), "\r\n"))
		for range batch {
			if line := client.line(); !strings.HasPrefix(line, "INSERTED") {
				t.Fatal(line)
			}
		}
	}
	_, err = peers.Fetch(c.ctx, peers.ClientConfig{}, l.listens, []byte(`{"op":"backup"}`), io.Discard) // takes a snapshot
	if err != nil {
		t.Fatal(err)
	}
	c.await(func() error {
		if s, err := c.status(l); err != nil || s.First <= at.Last+1 {
			return fmt.Errorf("the log begins with entry %d, and the follower has %d: %v", s.First, at.Last, err)
		}
		return nil
	})

	ctx, done := context.WithCancel(c.ctx)
	defer done()
	served := make(chan []time.Duration)
	go func() { served <- c.cycles(ctx, l) }()
	began := time.Now()
	c.start(away)
	c.await(func() error {
		s, err := c.status(away)
		if err == nil && s.Snapshot <= at.Last {
			err = errors.New("the follower has no snapshot of the leader yet")
		}
		return err
	})
	caughtUp := time.Since(began)
	done()
	took := <-served
	if len(took) == 0 {
		t.Fatal("no cycle has ended")
	}
	slices.Sort(took)
	t.Logf("%d jobs: caught up after %v; %d puts and deletes meanwhile, median %v, longest %v",
		jobsToCatchUp(), caughtUp, len(took), took[len(took)/2], took[len(took)-1])
	c.agree()
}

// cycles puts a job and deletes it, again and again, and returns how long each of the
// commands took.
func (c *testCluster) cycles(ctx context.Context, n *clusterNode) (took []time.Duration) {
	conn, err := net.Dial("tcp", n.client)
	if err != nil {
		c.t.Error(err)
		return nil
	}
	defer conn.Close()
	b := make([]byte, 100)
	ask := func(text string) string {
		began := time.Now()
		k := 0
		_, err := io.WriteString(conn, text+"\r\n")
		if err == nil {
			k, err = conn.Read(b)
		}
		if err != nil {
			c.t.Errorf("the leader has lost a client: %v", err)
		}
		took = append(took, time.Since(began))
		return string(b[:k])
	}
	for ctx.Err() == nil && !c.t.Failed() {
		reply := ask("put 1 0 60 1\r\nx")
		id, ok := strings.CutPrefix(strings.TrimSpace(reply), "INSERTED ")
		if !ok {
			c.t.Errorf("a put is answered %q", reply)
			break
		}
		if reply := ask("delete " + id); reply != "DELETED\r\n" {
			c.t.Errorf("a delete is answered %q", reply)
		}
	}
	return took
}

// Some link breaks and heals, again and again, while clients work: for as long as CLUSTER
// says, and a few times without it.
func TestAClusterHealsAgainAndAgain(t *testing.T) {
	t.Parallel()
	limit, long := time.ParseDuration(os.Getenv(clusterTime))
	c := startCluster(t, 3)
	heals := 0
	for began := time.Now(); heals == 0 || long == nil && time.Since(began) < limit; {
		w := c.work()
		for range 6 {
			w.progress(50)
			c.split()
			w.progress(50)
			c.network.Heal()
			heals++
		}
		w.progress(50)
		w.check()
	}
	s, err := c.status(c.leader())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d heals; the last leader is of term %d", heals, s.Term)
}

// split breaks some links; a majority of the nodes can still reach each other, and none of
// them waits for the others for ever.
func (c *testCluster) split() {
	n := anyOf(c.nodes)
	if rand.IntN(2) == 0 {
		n = c.leader()
	}
	others := c.others(n)
	switch rand.IntN(4) {
	case 0:
		c.network.Isolate(n.name)
	case 1:
		c.network.Cut(n.name, anyOf(others).name)
	case 2:
		for _, o := range others {
			c.network.Block(o.name, n.name)
		}
	case 3:
		for _, o := range others {
			c.network.Block(n.name, o.name)
		}
	}
}

// plantedProgram builds a trellisd that can be told to make a mistake (see package replica).
func plantedProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "trellisd")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-tags=planted", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// The check would notice: a leader that answers without asking whether it still leads is
// found out when it was stopped for a while and does not know yet what has happened.
func TestALeaderThatAnswersWithoutARoundIsFoundOut(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a program")
	}
	c := prepareCluster(t)
	c.program, c.env = plantedProgram(t), []string{"TRELLIS_PLANTED=no-round"}
	for range 3 {
		c.add(t.TempDir())
	}
	c.startAll()
	stopped := faults[slices.IndexFunc(faults, func(f fault) bool { return f.name == "SIGSTOP of the leader" })]
	for round := range 30 {
		w := c.work()
		w.progress(200)
		end := stopped.do(c)
		w.progress(200)
		end()
		w.progress(100)
		w.stop()
		err := errors.Join(<-w.done, w.Audit(c.ctx))
		if c.ctx.Err() != nil {
			t.Fatal(err)
		}
		if err == nil {
			err = clustertest.Check(w.Recorder.History())
		}
		if err != nil {
			t.Logf("found out in round %d: %.300v", round+1, err)
			return
		}
	}
	t.Error("not found out")
}
