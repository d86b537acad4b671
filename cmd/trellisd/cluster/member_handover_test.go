//go:build proof

package cluster

import (
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	peerwire "trellis/binlog/replica/wire"
	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

func TestALeaderThatIsToldToStopHandsOver(t *testing.T) {
	t.Parallel()
	clustertest.Undisturbed(t, 3, func(t testing.TB, w *clustertest.Cluster) {
		w.StartAll()
		l := w.Leader()
		c := l.Dial()
		waits := l.Dial()
		waits.Send("watch nothing", "ignore default", "reserve")
		waits.Want("WATCHING 2", "WATCHING 1")
		c.Send("put 0 0 60 1", "x")
		c.Want("INSERTED 1")
		l.Process.Signal(syscall.SIGTERM)
		if code := l.Process.Wait(); code != servertest.ExitOK {
			t.Errorf("exit code %d", code)
		}
		for _, line := range []string{`"why":"it was handed over"`, `"another member leads"`} {
			if err := l.Process.Await(line); err != nil {
				t.Error(err)
			}
		}
		c.WantEOF()
		waits.WantEOF()
		l.Door.Lead("")
		l.Process = nil
		next := w.Leader()
		c = next.Dial()
		c.Send("peek 1")
		c.Want("FOUND 1 1", "x")
	})
}

func TestAStandbySaysWhoLeadsAndServesClients(t *testing.T) {
	t.Parallel()
	clustertest.Undisturbed(t, 3, func(t testing.TB, w *clustertest.Cluster) {
		w.StartAll()
		l := w.Leader()
		port := l.Clients()
		want := "standby, leader is " + l.Name + " " + port
		w.Eventually("all others say "+want, func() bool {
			for _, n := range w.Nodes {
				if status, text := n.Leaderz(); n != l && (status != http.StatusServiceUnavailable || text != want) {
					return false
				}
			}
			return true
		})
		w.Standbys(l)
		for _, n := range w.Nodes {
			if status, _ := servertest.Get(t, "http://"+n.HTTP+"/healthz"); status != http.StatusOK {
				t.Errorf("%s is not healthy: %d", n.Name, status)
			}
			c := n.Dial()
			c.Send("list-tube-used")
			c.Want("USING default")
		}
		l.Process.Signal(syscall.SIGUSR1)
		w.Eventually("the leader drains", func() bool {
			status, text := l.Leaderz()
			return status == http.StatusServiceUnavailable && text == "draining"
		})
		c := l.Dial()
		c.Send("undrain")
		c.Want("NOT_DRAINING")
		w.Eventually("the leader accepts jobs again", func() bool {
			status, _ := l.Leaderz()
			return status == http.StatusOK
		})
		c.Send("drain")
		c.Want("DRAINING")
		w.Eventually("the leader drains because a client says so", func() bool {
			status, text := l.Leaderz()
			return status == http.StatusServiceUnavailable && text == "draining"
		})
		// Transferring leadership takes the clients along.
		var other *clustertest.Member
		for _, n := range w.Nodes {
			if n != l {
				other = n
			}
		}
		w.Eventually("a standby that is asked to hand over says who leads", func() bool {
			_, err := other.Ask(`{"op":"transfer"}`)
			if err == nil {
				t.Fatal("a standby hands over")
			}
			return strings.Contains(err.Error(), l.Name)
		})
		w.Eventually(other.Name+" leads", func() bool { // again if it could not take over in time
			_, _ = l.Ask(`{"op":"transfer","to":"` + other.Name + `"}`)
			status, _ := other.Leaderz()
			return status == http.StatusOK
		})
		w.Standbys(other) // the old leader among them
		c = l.Dial()
		c.Send("list-tube-used")
		c.Want("USING default")
	})
}

// A leader whose port somebody else has does not stay leader.
func TestALeaderThatCannotServeClientsHandsOver(t *testing.T) {
	t.Parallel()
	w := clustertest.NewCluster(t, 3)
	first := w.Nodes[0]
	path := filepath.Join(t.TempDir(), "s")
	first.Args = []string{"-lunix:" + path}
	first.Start("--cluster=" + w.List)
	first.Process.WaitText("belongs to no cluster yet")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, n := range w.Nodes[1:] {
		n.Start("--cluster=" + w.List)
	}
	w.Eventually("n1 has been elected, and has given up", func() bool {
		for _, line := range first.Process.Log() {
			if strings.Contains(line, "clients cannot be served; handing over to another member") {
				return true
			}
		}
		_, _ = w.Leader().Ask(`{"op":"transfer","to":"n1"}`)
		return false
	})
	if leads := w.Leader(); leads == first {
		t.Error("it serves on a socket of another's")
	}
}

// A member whose files are damaged does not start: it says in one line what is wrong with
// which file, and changes nothing.
func TestAMemberWithDamagedFilesDoesNotStart(t *testing.T) {
	t.Parallel()
	w := clustertest.NewCluster(t, 1)
	w.StartAll()
	n := w.Leader()
	w.Eventually("it has taken a snapshot", func() bool {
		_, err := peerwire.Fetch(t.Context(), peerwire.ClientConfig{}, n.Door.Addr(), []byte(`{"op":"backup"}`), io.Discard)
		return err == nil
	})
	n.Process.Signal(syscall.SIGTERM)
	n.Process.Wait()
	for what, pattern := range map[string]string{
		"mark": "cluster", "pointer": "snapshots/current", "description": "snapshots/*-*/meta", "jobs": "snapshots/*-*/trellis.*", "log": "entries/*",
	} {
		dir := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(dir, os.DirFS(n.Dir)); err != nil {
			t.Fatal(err)
		}
		damaged, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(damaged) == 0 {
			t.Fatalf("there is no %s, %v", pattern, err)
		}
		for _, file := range damaged {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(b) > 20 { // otherwise it is about to be written
				b[20] ^= 1 // in all of them, that is in what has a checksum
			}
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		before := tree(t, dir)
		p := servertest.Launch(t, "-p0", "-l127.0.0.1", "--cluster-listen=127.0.0.1:0", "-b", dir, "--node=n1="+n.Door.Addr())
		code := p.Wait()
		if log := p.Log(); code == 0 || len(log) != 1 || !slices.ContainsFunc(damaged, func(f string) bool { return strings.Contains(log[0], f) }) {
			t.Errorf("%s: exit code %d, %q", what, code, log)
		}
		after := tree(t, dir)
		delete(before, "/lock") // says who has it
		delete(after, "/lock")
		if !maps.Equal(before, after) {
			t.Errorf("%s: files have changed", what)
		}
	}
}
