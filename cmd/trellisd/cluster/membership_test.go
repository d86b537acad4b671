//go:build proof

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	peerwire "trellis/binlog/replica/wire"
	"trellis/binlog/replica/wire/wiretest"
	"trellis/cmd/internal/control"
	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

func TestANodeIsAddedCatchesUpAndTakesOver(t *testing.T) {
	t.Parallel()
	clustertest.Undisturbed(t, 1, func(t testing.TB, w *clustertest.Cluster) {
		w.StartAll()
		first := w.Leader()
		c := first.Dial()
		for i := range 50 {
			c.Send("put 0 0 60 3", "abc")
			c.Want(fmt.Sprint("INSERTED ", i+1))
		}
		second := w.Grow()
		second.Start("--cluster=" + w.List + "," + second.Name + "=" + second.Door.Addr())
		w.Eventually("the node says that it belongs to nobody", func() bool {
			status, text := second.Leaderz()
			return status == 503 && text == "waiting for the other members"
		})
		w.AskLeader(`{"op":"add","node":"` + second.Name + "=" + second.Door.Addr() + `"}`)
		if jobs := w.Settled(); jobs != 50 {
			t.Errorf("%d jobs", jobs)
		}
		w.AskLeader(`{"op":"transfer","to":"` + second.Name + `"}`)
		w.Eventually("the new node leads", func() bool { return w.Leader() == second })
		// The one that has founded the cluster leaves it, and says so when it is started again.
		w.AskLeader(`{"op":"remove","node":"n1"}`)
		if code := first.Process.Wait(); code != servertest.ExitFailed {
			t.Errorf("exit code %d", code)
		}
		if err := first.Process.Await("was removed from the cluster"); err != nil {
			t.Error(err)
		}
		again := servertest.Launch(t, "-b", first.Dir, "--node=n1="+first.Door.Addr(), "--cluster-listen=127.0.0.1:0", "-p0", "-l127.0.0.1")
		if code := again.Wait(); code != servertest.ExitBinlog || !strings.Contains(strings.Join(again.Log(), ""), "removed from its cluster") {
			t.Errorf("started again: %d, %q", code, again.Log())
		}
		first.Process = nil
		c = second.Dial()
		c.Send("put 0 0 60 1", "x", "peek 1")
		var next int
		if _, err := fmt.Sscanf(c.Line(), "INSERTED %d", &next); err != nil || next <= 50 {
			t.Errorf("the next id is %d, %v", next, err)
		}
		c.Want("FOUND 1 3", "abc")
	})
}

// A member that was away while others were added, and does not know them, catches up
// although one of these leads and none that it knows is left.
func TestAMemberThatWasAwayMeetsThoseWhoWereAdded(t *testing.T) {
	t.Parallel()
	clustertest.Undisturbed(t, 3, func(t testing.TB, w *clustertest.Cluster) {
		w.StartAll()
		c := w.Dial()
		c.Send("put 0 0 60 1", "x")
		c.Want("INSERTED 1")
		l := w.Leader()
		var away *clustertest.Member
		for _, n := range w.Nodes {
			if n != l {
				away = n
			}
		}
		away.Kill()
		members := slices.Clone(w.Nodes)
		for _, old := range w.Nodes[:3] {
			if old == away {
				continue
			}
			added := w.Grow()
			members = append(members, added)
			list := ""
			for _, m := range members {
				list += "," + m.Name + "=" + m.Door.Addr()
			}
			added.Start("--cluster=" + list[1:])
			w.AskLeader(`{"op":"add","node":"` + added.Name + "=" + added.Door.Addr() + `"}`)
			w.AskLeader(`{"op":"transfer","to":"` + added.Name + `"}`)
			w.Eventually("the new node leads", func() bool { return w.Leader() == added })
			w.AskLeader(`{"op":"remove","node":"` + old.Name + `"}`)
			old.Process.Wait()
			old.Process = nil
			members = slices.DeleteFunc(members, func(m *clustertest.Member) bool { return m == old })
		}
		away.Start()
		if jobs := w.Settled(); jobs != 1 {
			t.Errorf("%d jobs", jobs)
		}
	})
}

// A member that comes back with its old command line and without its disk does not vote
// as what it was, and does not found another cluster.
func TestAWipedNodeIsNoMember(t *testing.T) {
	t.Parallel()
	clustertest.Undisturbed(t, 3, func(t testing.TB, w *clustertest.Cluster) {
		w.StartAll()
		l := w.Leader()
		c := l.Dial()
		c.Send("put 0 0 60 1", "x")
		c.Want("INSERTED 1")
		var wiped *clustertest.Member
		for _, n := range w.Nodes {
			if n != l {
				wiped = n
			}
		}
		wiped.Kill()
		entries, err := os.ReadDir(wiped.Dir)
		servertest.NoError(t, err)
		for _, e := range entries {
			servertest.NoError(t, os.RemoveAll(filepath.Join(wiped.Dir, e.Name())))
		}
		wiped.Start("--cluster=" + w.List)
		wiped.Process.WaitText("remove " + wiped.Name + " and add it again")
		// With the other follower gone too, nobody is left to elect a leader with.
		for _, n := range w.Nodes {
			if n != l && n != wiped {
				n.Kill()
			}
		}
		w.Eventually("the leader has given up", func() bool {
			status, _ := l.Leaderz()
			return status != 200
		})
		l.Process.WaitText(`"why":"too few members answer"`)
		if _, text := servertest.Get(t, "http://"+wiped.HTTP+"/leaderz"); text != "waiting for the other members\n" {
			t.Errorf("the wiped node says %q", text)
		}
		for _, n := range w.Nodes {
			if n.Process == nil {
				n.Start()
			}
		}
		c = w.Dial()
		c.Send("peek 1")
		c.Want("FOUND 1 1", "x")
	})
}

func TestMembersWithCertificatesServeAndStrangersAreRefused(t *testing.T) {
	t.Parallel()
	clustertest.Undisturbed(t, 3, func(t testing.TB, w *clustertest.Cluster) {
		authority, stranger := wiretest.NewAuthority(t, "cluster"), wiretest.NewAuthority(t, "stranger")
		flags := func(f wiretest.Files) []string {
			return []string{"--cluster-cert=" + f.Cert, "--cluster-key=" + f.Key, "--cluster-ca=" + authority.File}
		}
		ends := time.Now().Add(time.Hour)
		for i, n := range w.Nodes {
			f := authority.Issue(ends, "127.0.0.1")
			if i == 2 {
				f = stranger.Issue(ends, "127.0.0.1")
			}
			n.Args = flags(f)
			n.Start("--cluster=" + w.List)
		}
		for _, n := range w.Nodes[:2] {
			n.Process.WaitText("certificate")
			if status, text := n.Leaderz(); status == 200 {
				t.Errorf("%s serves with a stranger: %s", n.Name, text)
			}
		}
		w.Nodes[2].Kill()
		mine := authority.Issue(ends, "127.0.0.1")
		w.Nodes[2].Args = flags(mine)
		w.Nodes[2].Start("--cluster=" + w.List)
		config, err := peerwire.LoadTLS(mine.Cert, mine.Key, authority.File, slog.New(slog.DiscardHandler))
		servertest.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), clustertest.ElectionPatience)
		defer cancel()
		var s control.Status
		w.Eventually("the leader tells of three members, and of itself", func() bool {
			resp, err := peerwire.Call(ctx, peerwire.ClientConfig{TLS: config}, w.Leader().Door.Addr(), []byte(`{"op":"status"}`))
			return err == nil && json.Unmarshal(resp, &s) == nil && s.Clients != "" && len(s.Members) == 3
		})
		client := servertest.Dial(t, servertest.AddrOn("tcp", s.Clients))
		client.Send("put 0 0 60 1", "x")
		client.Want("INSERTED 1")
	})
}

func TestANodeThatWaitsForTheOthersStopsWhenItIsTold(t *testing.T) {
	t.Parallel()
	w := clustertest.NewCluster(t, 3)
	n := w.Nodes[0]
	n.Start("--cluster=" + w.List)
	n.Process.WaitText("belongs to no cluster yet")
	n.Process.Signal(syscall.SIGTERM)
	if code := n.Process.Wait(); code != servertest.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestAMemberRefusesInheritedSockets(t *testing.T) {
	t.Parallel()
	tcp, _ := servertest.Passable(t, "tcp", "127.0.0.1:0")
	p := servertest.Activated(t, []*os.File{tcp}, []string{"LISTEN_FDS=1"},
		"-b", t.TempDir(), "--node=n1=127.0.0.1:1", "--cluster=n1=127.0.0.1:1", "--cluster-listen=127.0.0.1:0")
	if code := p.Wait(); code != servertest.ExitListen || len(p.Log()) != 1 || !strings.Contains(p.Log()[0], "systemd") {
		t.Errorf("exit code %d, %q", code, p.Log())
	}
}

// putMany puts at least n jobs, whoever leads meanwhile, and returns how many there are.
func putMany(w *clustertest.Cluster, n int, body string) uint64 {
	w.T.Helper()
	const batch = 100
	put := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("put 0 0 60 %d\r\n%s\r\n", len(body), body), batch), "\r\n")
	for c := w.Dial(); n > 0; n -= batch {
		c.Renew()
		_, err := io.WriteString(c.Conn, put+"\r\n")
		for range batch {
			var line string
			if err == nil {
				line, err = c.In.ReadString('\n')
			}
			if err == nil && !strings.HasPrefix(line, "INSERTED") {
				w.T.Fatal(line)
			}
		}
		if err != nil { // the leadership has ended
			n += batch
			c = w.Dial()
		}
	}
	return w.Settled()
}

// Leadership goes round and round: each time a process makes an engine and event loops
// anew, and it does not grow.
func TestAProcessThatLeadsAgainAndAgainDoesNotGrow(t *testing.T) {
	if servertest.RaceEnabled {
		t.Skip("the race detector takes memory for itself")
	}
	t.Parallel()
	w := clustertest.NewCluster(t, 2)
	w.StartAll()
	jobs := putMany(w, 20_000, strings.Repeat("x", 1000))
	held := func() (kb int) {
		for _, n := range w.Nodes {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.Process.Cmd.Process.Pid))
			if err != nil {
				t.Skip(err)
			}
			for line := range strings.Lines(string(b)) {
				var one int
				if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &one); err == nil {
					kb += one
				}
			}
		}
		return kb
	}
	round := func() {
		l := w.Leader()
		for _, n := range w.Nodes {
			if n != l {
				_, _ = l.Ask(`{"op":"transfer","to":"` + n.Name + `"}`)
			}
		}
		if n := w.Settled(); n != jobs {
			t.Fatalf("%d jobs", n)
		}
	}
	for range 4 {
		round()
	}
	before := held()
	for range 16 {
		round()
	}
	if after := held(); after > before+before/2 {
		t.Errorf("%d kB before 16 leaderships, %d kB after", before, after)
	} else {
		t.Logf("%d kB before 16 leaderships, %d kB after", before, after)
	}
}
