//go:build proof

package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	peers "trellis/binlog/replica/wire"
	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

// A leader that is cut off from the others acknowledges nothing, hands out nothing, and
// says nothing of what there is. It comes back as a standby by itself.
func TestALeaderThatIsAloneAnswersNobody(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	commands := []string{"put 0 0 60 1\r\nz", "reserve", "reserve-with-timeout 0", "delete 1", "peek 1", "peek-ready", "stats-job 1", "stats", "list-tubes"}
	var l *clustertest.Node
	var asking []*producer
	c.Await(func() error { // again if the leader changes meanwhile, as on a machine that is busy
		l, asking = c.Leader(), nil
		for range commands {
			p := &producer{c: c, at: l}
			asking = append(asking, p)
			if got := p.ask("use default"); len(got) == 0 {
				return errors.New("the leader has lost its clients")
			}
		}
		if s, err := c.Status(l); err != nil || !s.Serves {
			return fmt.Errorf("%s serves no more: %v", l.Name, err)
		}
		return nil
	})
	p, tries := &producer{c: c}, 0
	c.Await(func() error {
		if tries++; len(p.put(1, 2)) < 2 {
			return errors.New("no jobs")
		}
		return nil
	})
	c.Network.Isolate(l.Name)
	for i, a := range asking {
		_, _ = io.WriteString(a.conn, commands[i]+"\r\n") // which may have been ended
	}
	for i, a := range asking {
		if b, err := io.ReadAll(a.in); len(b) > 0 {
			t.Errorf("%q was answered %q, %v", commands[i], b, err)
		}
	}
	c.Leader(c.Others(l)...)
	c.Await(func() error {
		if s, err := c.Status(l); err != nil || s.Leads {
			return fmt.Errorf("%s leads alone: %v", l.Name, err)
		}
		return nil
	})
	c.Await(func() error { // soon, now that it knows
		conn, err := net.Dial("tcp", l.Client)
		if err != nil {
			return nil
		}
		return errors.Join(errors.New("the port for clients of a member that does not lead is open"), conn.Close())
	})
	c.Network.Heal()
	c.Agree()
	if n := c.jobs(); n < 2 || tries == 1 && n > 2 {
		t.Errorf("there are %d jobs, and 2 were acknowledged", n)
	}
}

// The members change while clients work: a node is added and takes over, and two of those
// that have founded the cluster leave it.
func TestMembersChangeUnderLoad(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	w := c.work()
	w.progress(200)
	added := c.Add(t.TempDir())
	c.Start(added)
	c.tell(fmt.Sprintf(`{"op":"add","node":"%s=%s"}`, added.Name, added.Addr))
	w.progress(200)
	c.tell(fmt.Sprintf(`{"op":"transfer","to":%q}`, added.Name))
	w.progress(200)
	for range 2 {
		gone := clustertest.AnyOf(c.Others(added))
		c.tell(fmt.Sprintf(`{"op":"remove","node":%q}`, gone.Name))
		if code := gone.Wait(); code != servertest.ExitFailed {
			t.Errorf("%s has ended with %d", gone.Name, code)
		}
		c.Network.Runs(gone.Name, "", 0)
		c.Nodes = c.Others(gone)
		w.progress(200)
	}
	w.check()
}

// tell has the leader, whoever that is, do something.
func (c *testCluster) tell(request string) {
	c.T.Helper()
	c.Await(func() error {
		l := c.Leader()
		_, err := c.Ask(l, request)
		if err == nil {
			return nil
		}
		s, statusErr := c.Status(l)
		members := map[string]bool{}
		for _, m := range s.Members {
			members[m.Name] = m.Voter
		}
		if statusErr == nil && s.Serves && clustertest.IsDone(request, l.Name, members) {
			return nil
		}
		return fmt.Errorf("%s: %w", request, err)
	})
}

func jobsToCatchUp() int {
	if n, err := strconv.Atoi(os.Getenv("CLUSTER_JOBS")); err == nil {
		return n
	}
	if os.Getenv(clustertest.TimeEnv) != "" {
		return 1_000_000
	}
	return 20_000
}

// A follower that was away for longer than the log goes back gets a snapshot, and the
// leader serves meanwhile, as it does while it takes that snapshot.
func TestAFollowerCatchesUpBySnapshotWhileTheLeaderServes(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	away := clustertest.AnyOf(c.Others(c.Leader()))
	at := c.status(away)
	c.Stop(away)
	p := &producer{c: c}
	c.Await(func() error {
		if p.put(50, 2000); p.acked < jobsToCatchUp() {
			return fmt.Errorf("%d jobs", p.acked)
		}
		return nil
	})
	quiet := 100 * time.Millisecond
	if os.Getenv(clustertest.TimeEnv) != "" {
		quiet = 5 * time.Second
	}
	p.whileServed("nothing else happens", func() { time.Sleep(quiet) })
	for _, n := range c.Others(away) { // whoever will lead then
		p.whileServed(n.Name+" takes a snapshot", func() {
			c.Await(func() error {
				_, err := peers.Fetch(c.Ctx, peers.ClientConfig{}, n.Listens, []byte(`{"op":"backup"}`), io.Discard)
				return err
			})
			c.Await(func() error {
				s, err := c.Status(n)
				if err == nil && s.First <= at.Last+1 {
					err = fmt.Errorf("the log of %s begins with entry %d, and the follower has %d", n.Name, s.First, at.Last)
				}
				return err
			})
		})
	}
	p.whileServed("the follower catches up", func() {
		c.Start(away)
		c.Await(func() error {
			s, err := c.Status(away)
			if err == nil && s.Snapshot <= at.Last {
				err = errors.New("the follower has no snapshot of the leader yet")
			}
			return err
		})
	})
	c.Agree()
}

// whileServed does something, has clients served meanwhile, and tells how long they waited.
func (p *producer) whileServed(what string, do func()) {
	t := p.c.T
	t.Helper()
	ctx, done := context.WithCancel(p.c.Ctx)
	defer done()
	served := make(chan []time.Duration, 1)
	go func() { served <- p.cycles(ctx) }()
	began := time.Now()
	do()
	lasted := time.Since(began)
	done()
	took := <-served
	if len(took) == 0 {
		t.Fatal("no command was answered")
	}
	slices.Sort(took)
	t.Logf("%d jobs; %s, for %v: %d puts and deletes meanwhile, median %v, p99 %v, p99.9 %v, worst %v",
		p.acked, what, lasted, len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)*999/1000], took[len(took)-1])
}

// Settings of tubes, dead letters, attempts that have failed, jobs that wait for the next one, unique
// keys and what deleted jobs leave of these are the same on all members, whether they have
// followed or got a snapshot, and outlive a leader.
func TestSettingsAndKeysOfAClusterOutliveItsLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	p := &producer{c: c}
	ask := func(want string, commands ...string) { // the last reply matters
		t.Helper()
		c.Await(func() error {
			if got := p.ask(commands...); len(got) < len(commands) || !strings.HasPrefix(got[len(got)-1], want) {
				return fmt.Errorf("%q: %q, and not %q", commands, got, want)
			}
			return nil
		})
	}
	const jobs = 50
	job := func(i int) string { return fmt.Sprintf("put 5 0 60 1 idp:k%d:3600\r\nx", i) }
	made := func() {
		t.Helper()
		ask("DLQ_SET", "set-dlq failing 2 dead")
		ids := make([]string, jobs)
		for i := range jobs {
			c.Await(func() error { // again if the leader changes, and then it is there
				got := strings.Fields(strings.Join(p.ask(job(i)), ""))
				if len(got) < 2 || got[0] != "INSERTED" {
					return fmt.Errorf("%q", got)
				}
				ids[i] = got[1]
				return nil
			})
		}
		for _, id := range ids[:jobs/2] {
			c.Await(func() error {
				if got := p.ask("delete " + id); len(got) == 0 {
					return errors.New("no reply")
				}
				return nil
			})
		}
	}
	// fails has a job of the tube failing fail until it is like that.
	fails := func(id string, like ...string) {
		t.Helper()
		c.Await(func() error {
			got := strings.ReplaceAll(p.reply("stats-job "+id), `"`, "")
			if !slices.ContainsFunc(like, func(field string) bool { return !strings.Contains(got, "\n"+field+"\n") }) {
				return nil
			}
			// A reservation ends with its connection, and has not failed then.
			if strings.HasPrefix(p.reply("reserve-job "+id), "RESERVED") {
				p.reply("release " + id + " 5 0")
			}
			return fmt.Errorf("job %s is %q, and not %q", id, got, like)
		})
	}
	var failing []string // two dead letters, and a job that has failed once
	once := []string{"tube: failing", "state: ready", "releases: 1", "buries: 0"}
	dead := []string{"tube: dead", "state: buried", "releases: 2", "buries: 1"}
	var waiting string // a job that has failed once, in a tube where it waits then
	waits := []string{"tube: waiting", "state: delayed", "delay: 3000", "releases: 1"}
	fail := func() {
		t.Helper()
		ask("TUBE_SET", "set-tube waiting retry-min=3000 retry-jitter=0 disconnects=0 burst=7")
		for waiting == "" {
			if got := p.ask("use waiting", "put 5 0 60 1\r\nx"); len(got) == 2 && strings.HasPrefix(got[1], "INSERTED ") {
				waiting = strings.Fields(got[1])[1]
			}
		}
		fails(waiting, waits...)
		for len(failing) < 3 {
			if got := p.ask("use failing", "put 5 0 60 1\r\nx"); len(got) == 2 && strings.HasPrefix(got[1], "INSERTED ") {
				failing = append(failing, strings.Fields(got[1])[1])
			}
		}
		ask("USING", "use default")
		fails(failing[0], dead...)
		fails(failing[1], dead...)
		fails(failing[2], once...)
	}
	holds := func() {
		t.Helper()
		for i := range jobs {
			c.Await(func() error {
				got := strings.Join(p.ask(job(i)), "")
				if deleted := strings.HasSuffix(got, " DELETED"); got == "" || deleted != (i < jobs/2) || !deleted && !strings.HasSuffix(got, " READY") {
					return fmt.Errorf("job %d: %q", i, got)
				}
				return nil
			})
		}
		c.Await(func() error {
			if got := p.reply("list-dlq"); !strings.Contains(got, "failing") {
				return fmt.Errorf("the settings are %q", got)
			}
			return nil
		})
		c.Await(func() error {
			if got := p.reply("list-settings waiting"); !strings.Contains(got, "retry-min: 3000") || !strings.Contains(got, "burst: 7") {
				return fmt.Errorf("the setting is %q", got)
			}
			return nil
		})
		for i, like := range [][]string{dead, dead, once, waits} {
			c.Await(func() error {
				id := append(failing[:3:3], waiting)[i]
				got := strings.ReplaceAll(p.reply("stats-job "+id), `"`, "")
				switch missing := slices.IndexFunc(like, func(field string) bool { return !strings.Contains(got, "\n"+field+"\n") }); {
				case got == "":
					return errors.New("no reply")
				case missing >= 0:
					t.Fatalf("job %s is %q, and not %q", id, got, like[missing])
				}
				return nil
			})
		}
	}
	made()
	fail()
	holds()
	c.Agree()
	old := c.Leader()
	c.Stop(old)
	holds()
	c.Wipe(old)
	c.tell(fmt.Sprintf(`{"op":"remove","node":%q}`, old.Name))
	c.Nodes = c.Others(old)
	was := c.status(c.Leader())
	added := c.Add(t.TempDir())
	c.Start(added)
	c.tell(fmt.Sprintf(`{"op":"add","node":"%s=%s"}`, added.Name, added.Addr))
	c.Agree()
	if s := c.status(added); s.Snapshot < was.Applied {
		t.Errorf("the member that was added has a snapshot of entry %d, and all of this was made up to entry %d", s.Snapshot, was.Applied)
	}
	c.tell(fmt.Sprintf(`{"op":"transfer","to":%q}`, added.Name))
	holds()
	fails(failing[2], dead...) // with the attempt, and the setting, that the snapshot has told of
	c.Agree()
}

// cycles puts a job and deletes it, again and again until ctx ends and at least once, and
// returns how long each of the commands took that were answered.
func (p *producer) cycles(ctx context.Context) (took []time.Duration) {
	ask := func(command string) (reply string) {
		began := time.Now()
		got := p.ask(command)
		if len(got) == 0 {
			return ""
		}
		took = append(took, time.Since(began))
		return got[0]
	}
	for ctx.Err() == nil || len(took) == 0 && p.c.Ctx.Err() == nil {
		id, ok := strings.CutPrefix(ask("put 1 0 60 1\r\nx"), "INSERTED ")
		if ok {
			ask("delete " + id)
		}
	}
	return took
}
