//go:build proof

package main

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
)

func TestALeaderThatIsToldToStopHandsOver(t *testing.T) {
	t.Parallel()
	undisturbed(t, 3, func(t testing.TB, w *town) {
		w.startAll()
		l := w.leader()
		c := l.dial()
		waits := l.dial()
		waits.send("watch nothing", "ignore default", "reserve")
		waits.want("WATCHING 2", "WATCHING 1")
		c.send("put 0 0 60 1", "x")
		c.want("INSERTED 1")
		l.p.signal(syscall.SIGTERM)
		if code := l.p.wait(); code != exitOK {
			t.Errorf("exit code %d", code)
		}
		for _, line := range []string{`"why":"it was handed over"`, `"another member leads"`} {
			if err := l.p.await(line); err != nil {
				t.Error(err)
			}
		}
		c.wantEOF()
		waits.wantEOF()
		l.door.lead("")
		l.p = nil
		next := w.leader()
		c = next.dial()
		c.send("peek 1")
		c.want("FOUND 1 1", "x")
	})
}

func TestAStandbySaysWhoLeadsAndServesClients(t *testing.T) {
	t.Parallel()
	undisturbed(t, 3, func(t testing.TB, w *town) {
		w.startAll()
		l := w.leader()
		port := l.clients()
		want := "standby, leader is " + l.name + " " + port
		w.eventually("all others say "+want, func() bool {
			for _, n := range w.nodes {
				if status, text := n.leaderz(); n != l && (status != http.StatusServiceUnavailable || text != want) {
					return false
				}
			}
			return true
		})
		w.standbys(l)
		for _, n := range w.nodes {
			if status, _ := httpGet(t, "http://"+n.http+"/healthz"); status != http.StatusOK {
				t.Errorf("%s is not healthy: %d", n.name, status)
			}
			c := n.dial()
			c.send("list-tube-used")
			c.want("USING default")
		}
		l.p.signal(syscall.SIGUSR1)
		w.eventually("the leader drains", func() bool {
			status, text := l.leaderz()
			return status == http.StatusServiceUnavailable && text == "draining"
		})
		c := l.dial()
		c.send("undrain")
		c.want("NOT_DRAINING")
		w.eventually("the leader accepts jobs again", func() bool {
			status, _ := l.leaderz()
			return status == http.StatusOK
		})
		c.send("drain")
		c.want("DRAINING")
		w.eventually("the leader drains because a client says so", func() bool {
			status, text := l.leaderz()
			return status == http.StatusServiceUnavailable && text == "draining"
		})
		// Transferring leadership takes the clients along.
		var other *townsman
		for _, n := range w.nodes {
			if n != l {
				other = n
			}
		}
		if _, err := other.ask(`{"op":"transfer"}`); err == nil || !strings.Contains(err.Error(), l.name) {
			t.Errorf("a standby was asked to hand over: %v", err)
		}
		w.eventually(other.name+" leads", func() bool { // again if it could not take over in time
			_, _ = l.ask(`{"op":"transfer","to":"` + other.name + `"}`)
			status, _ := other.leaderz()
			return status == http.StatusOK
		})
		w.standbys(other) // the old leader among them
		c = l.dial()
		c.send("list-tube-used")
		c.want("USING default")
	})
}

// A leader whose port somebody else has does not stay leader.
func TestALeaderThatCannotServeClientsHandsOver(t *testing.T) {
	t.Parallel()
	w := newTown(t, 3)
	first := w.nodes[0]
	path := filepath.Join(t.TempDir(), "s")
	first.args = []string{"-lunix:" + path}
	first.start("--cluster=" + w.list)
	first.p.waitText("belongs to no cluster yet")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, n := range w.nodes[1:] {
		n.start("--cluster=" + w.list)
	}
	w.eventually("n1 has been elected, and has given up", func() bool {
		for _, line := range first.p.log() {
			if strings.Contains(line, "clients cannot be served; handing over to another member") {
				return true
			}
		}
		_, _ = w.leader().ask(`{"op":"transfer","to":"n1"}`)
		return false
	})
	if leads := w.leader(); leads == first {
		t.Error("it serves on a socket of another's")
	}
}

// A member whose files are damaged does not start: it says in one line what is wrong with
// which file, and changes nothing.
func TestAMemberWithDamagedFilesDoesNotStart(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.startAll()
	n := w.leader()
	w.eventually("it has taken a snapshot", func() bool {
		_, err := peerwire.Fetch(t.Context(), peerwire.ClientConfig{}, n.door.addr(), []byte(`{"op":"backup"}`), io.Discard)
		return err == nil
	})
	n.p.signal(syscall.SIGTERM)
	n.p.wait()
	for what, pattern := range map[string]string{
		"mark": "cluster", "pointer": "snapshots/current", "description": "snapshots/*-*/meta", "jobs": "snapshots/*-*/trellis.*", "log": "entries/*",
	} {
		dir := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(dir, os.DirFS(n.dir)); err != nil {
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
		p := launch(t, "-p0", "-l127.0.0.1", "--cluster-listen=127.0.0.1:0", "-b", dir, "--node=n1="+n.door.addr())
		code := p.wait()
		if log := p.log(); code == 0 || len(log) != 1 || !slices.ContainsFunc(damaged, func(f string) bool { return strings.Contains(log[0], f) }) {
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
