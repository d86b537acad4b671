//go:build proof

package main

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
)

// grow adds a node that knows the others of a town and is none of them yet.
func (w *town) grow() *townsman {
	w.t.Helper()
	n := &townsman{town: w, name: fmt.Sprint("n", len(w.nodes)+1), dir: w.t.TempDir(), door: newDoor(w.t)}
	w.nodes = append(w.nodes, n)
	return n
}

// askLeader sends a request to whoever leads, until it is done.
func (w *town) askLeader(request string) {
	w.t.Helper()
	w.eventually(request, func() bool {
		l := w.leader()
		if _, err := l.ask(request); err == nil {
			return true
		}
		s, err := l.ask(`{"op":"status"}`)
		members := map[string]bool{}
		for _, m := range s.Members {
			members[m.Name] = m.Voter
		}
		return err == nil && s.Serves && isDone(request, l.name, members)
	})
}

// isDone tells whether the members, by whether they vote, and the leader are what a request asks for. Who was
// asked before may have done it, and have led no more when it should have said so.
func isDone(request, leader string, members map[string]bool) bool {
	var r control.Request
	if json.Unmarshal([]byte(request), &r) != nil {
		return false
	}
	name, _, _ := strings.Cut(r.Node, "=")
	votes, is := members[name]
	return r.Op == control.OpAdd && votes || r.Op == control.OpRemove && !is || r.Op == control.OpTransfer && leader == r.To
}

func TestANodeIsAddedCatchesUpAndTakesOver(t *testing.T) {
	t.Parallel()
	undisturbed(t, 1, func(t testing.TB, w *town) {
		w.startAll()
		first := w.leader()
		c := first.dial()
		for i := range 50 {
			c.send("put 0 0 60 3", "abc")
			c.want(fmt.Sprint("INSERTED ", i+1))
		}
		second := w.grow()
		second.start("--cluster=" + w.list + "," + second.name + "=" + second.door.addr())
		w.eventually("the node says that it belongs to nobody", func() bool {
			status, text := second.leaderz()
			return status == 503 && text == "waiting for the other members"
		})
		w.askLeader(`{"op":"add","node":"` + second.name + "=" + second.door.addr() + `"}`)
		if jobs := w.settled(); jobs != 50 {
			t.Errorf("%d jobs", jobs)
		}
		w.askLeader(`{"op":"transfer","to":"` + second.name + `"}`)
		w.eventually("the new node leads", func() bool { return w.leader() == second })
		// The one that has founded the cluster leaves it, and says so when it is started again.
		w.askLeader(`{"op":"remove","node":"n1"}`)
		if code := first.p.wait(); code != exitFailed {
			t.Errorf("exit code %d", code)
		}
		if err := first.p.await("was removed from the cluster"); err != nil {
			t.Error(err)
		}
		again := launch(t, "-b", first.dir, "--node=n1="+first.door.addr(), "--cluster-listen=127.0.0.1:0", "-p0", "-l127.0.0.1")
		if code := again.wait(); code != exitBinlog || !strings.Contains(strings.Join(again.log(), ""), "removed from its cluster") {
			t.Errorf("started again: %d, %q", code, again.log())
		}
		first.p = nil
		c = second.dial()
		c.send("put 0 0 60 1", "x", "peek 1")
		var next int
		if _, err := fmt.Sscanf(c.line(), "INSERTED %d", &next); err != nil || next <= 50 {
			t.Errorf("the next id is %d, %v", next, err)
		}
		c.want("FOUND 1 3", "abc")
	})
}

// A member that was away while others were added, and does not know them, catches up
// although one of these leads and none that it knows is left.
func TestAMemberThatWasAwayMeetsThoseWhoWereAdded(t *testing.T) {
	t.Parallel()
	undisturbed(t, 3, func(t testing.TB, w *town) {
		w.startAll()
		c := w.dial()
		c.send("put 0 0 60 1", "x")
		c.want("INSERTED 1")
		l := w.leader()
		var away *townsman
		for _, n := range w.nodes {
			if n != l {
				away = n
			}
		}
		away.kill()
		members := slices.Clone(w.nodes)
		for _, old := range w.nodes[:3] {
			if old == away {
				continue
			}
			added := w.grow()
			members = append(members, added)
			list := ""
			for _, m := range members {
				list += "," + m.name + "=" + m.door.addr()
			}
			added.start("--cluster=" + list[1:])
			w.askLeader(`{"op":"add","node":"` + added.name + "=" + added.door.addr() + `"}`)
			w.askLeader(`{"op":"transfer","to":"` + added.name + `"}`)
			w.eventually("the new node leads", func() bool { return w.leader() == added })
			w.askLeader(`{"op":"remove","node":"` + old.name + `"}`)
			old.p.wait()
			old.p = nil
			members = slices.DeleteFunc(members, func(m *townsman) bool { return m == old })
		}
		away.start()
		if jobs := w.settled(); jobs != 1 {
			t.Errorf("%d jobs", jobs)
		}
	})
}

// A member that comes back with its old command line and without its disk does not vote
// as what it was, and does not found another cluster.
func TestAWipedNodeIsNoMember(t *testing.T) {
	t.Parallel()
	undisturbed(t, 3, func(t testing.TB, w *town) {
		w.startAll()
		l := w.leader()
		c := l.dial()
		c.send("put 0 0 60 1", "x")
		c.want("INSERTED 1")
		var wiped *townsman
		for _, n := range w.nodes {
			if n != l {
				wiped = n
			}
		}
		wiped.kill()
		entries, err := os.ReadDir(wiped.dir)
		no(t, err)
		for _, e := range entries {
			no(t, os.RemoveAll(filepath.Join(wiped.dir, e.Name())))
		}
		wiped.start("--cluster=" + w.list)
		wiped.p.waitText("remove " + wiped.name + " and add it again")
		// With the other follower gone too, nobody is left to elect a leader with.
		for _, n := range w.nodes {
			if n != l && n != wiped {
				n.kill()
			}
		}
		w.eventually("the leader has given up", func() bool {
			status, _ := l.leaderz()
			return status != 200
		})
		l.p.waitText(`"why":"too few members answer"`)
		if _, text := httpGet(t, "http://"+wiped.http+"/leaderz"); text != "waiting for the other members\n" {
			t.Errorf("the wiped node says %q", text)
		}
		for _, n := range w.nodes {
			if n.p == nil {
				n.start()
			}
		}
		c = w.dial()
		c.send("peek 1")
		c.want("FOUND 1 1", "x")
	})
}

func TestMembersWithCertificatesServeAndStrangersAreRefused(t *testing.T) {
	t.Parallel()
	undisturbed(t, 3, func(t testing.TB, w *town) {
		authority, stranger := wiretest.NewAuthority(t, "cluster"), wiretest.NewAuthority(t, "stranger")
		flags := func(f wiretest.Files) []string {
			return []string{"--cluster-cert=" + f.Cert, "--cluster-key=" + f.Key, "--cluster-ca=" + authority.File}
		}
		ends := time.Now().Add(time.Hour)
		for i, n := range w.nodes {
			f := authority.Issue(ends, "127.0.0.1")
			if i == 2 {
				f = stranger.Issue(ends, "127.0.0.1")
			}
			n.args = flags(f)
			n.start("--cluster=" + w.list)
		}
		for _, n := range w.nodes[:2] {
			n.p.waitText("certificate")
			if status, text := n.leaderz(); status == 200 {
				t.Errorf("%s serves with a stranger: %s", n.name, text)
			}
		}
		w.nodes[2].kill()
		mine := authority.Issue(ends, "127.0.0.1")
		w.nodes[2].args = flags(mine)
		w.nodes[2].start("--cluster=" + w.list)
		config, err := peerwire.LoadTLS(mine.Cert, mine.Key, authority.File, slog.New(slog.DiscardHandler))
		no(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), electionPatience)
		defer cancel()
		var s control.Status
		w.eventually("the leader tells of three members, and of itself", func() bool {
			resp, err := peerwire.Call(ctx, peerwire.ClientConfig{TLS: config}, w.leader().door.addr(), []byte(`{"op":"status"}`))
			return err == nil && json.Unmarshal(resp, &s) == nil && s.Clients != "" && len(s.Members) == 3
		})
		client := dial(t, address{"tcp", s.Clients})
		client.send("put 0 0 60 1", "x")
		client.want("INSERTED 1")
	})
}

func TestANodeThatWaitsForTheOthersStopsWhenItIsTold(t *testing.T) {
	t.Parallel()
	w := newTown(t, 3)
	n := w.nodes[0]
	n.start("--cluster=" + w.list)
	n.p.waitText("belongs to no cluster yet")
	n.p.signal(syscall.SIGTERM)
	if code := n.p.wait(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestAMemberRefusesInheritedSockets(t *testing.T) {
	t.Parallel()
	tcp, _ := passable(t, "tcp", "127.0.0.1:0")
	p := activated(t, []*os.File{tcp}, []string{"LISTEN_FDS=1"},
		"-b", t.TempDir(), "--node=n1=127.0.0.1:1", "--cluster=n1=127.0.0.1:1", "--cluster-listen=127.0.0.1:0")
	if code := p.wait(); code != exitListen || len(p.log()) != 1 || !strings.Contains(p.log()[0], "systemd") {
		t.Errorf("exit code %d, %q", code, p.log())
	}
}

// fill puts at least n jobs, whoever leads meanwhile, and returns how many there are.
func (w *town) fill(n int, body string) uint64 {
	w.t.Helper()
	const batch = 100
	put := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("put 0 0 60 %d\r\n%s\r\n", len(body), body), batch), "\r\n")
	for c := w.dial(); n > 0; n -= batch {
		c.renew()
		_, err := io.WriteString(c.conn, put+"\r\n")
		for range batch {
			var line string
			if err == nil {
				line, err = c.in.ReadString('\n')
			}
			if err == nil && !strings.HasPrefix(line, "INSERTED") {
				w.t.Fatal(line)
			}
		}
		if err != nil { // the leadership has ended
			n += batch
			c = w.dial()
		}
	}
	return w.settled()
}

// Leadership goes round and round: each time a process makes an engine and event loops
// anew, and it does not grow.
func TestAProcessThatLeadsAgainAndAgainDoesNotGrow(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes memory for itself")
	}
	t.Parallel()
	w := newTown(t, 2)
	w.startAll()
	jobs := w.fill(20_000, strings.Repeat("x", 1000))
	held := func() (kb int) {
		for _, n := range w.nodes {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.p.cmd.Process.Pid))
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
		l := w.leader()
		for _, n := range w.nodes {
			if n != l {
				_, _ = l.ask(`{"op":"transfer","to":"` + n.name + `"}`)
			}
		}
		if n := w.settled(); n != jobs {
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
