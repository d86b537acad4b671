package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/beanstalkd/go-beanstalk"

	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

// Clients of a stock library put and delete jobs at all members, and the leader is killed under them.
// What was acknowledged is so at the next leader, and in the end on all nodes.
func TestNothingAcknowledgedIsLostWhenTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	w := clustertest.NewCluster(t, 3)
	w.StartAll()
	var (
		mu      sync.Mutex
		there   = map[uint64]string{} // acknowledged puts
		deleted = map[uint64]bool{}   // acknowledged deletes
		unknown = map[uint64]bool{}   // deletes without an answer
	)
	rounds := 1
	if servertest.Proof {
		rounds = 3
	}
	for round := range rounds {
		var working sync.WaitGroup
		var at atomic.Int32 // workers at work
		var over atomic.Bool
		work := func(c *beanstalk.Conn, worker int) {
			defer at.Add(-1)
			defer c.Close()
			for i := 0; !over.Load(); i++ {
				body := fmt.Sprintf("job %d of client %d in round %d", i, worker, round)
				id, err := c.Put([]byte(body), 0, 0, time.Minute)
				if err != nil {
					return
				}
				mu.Lock()
				there[id] = body
				mu.Unlock()
				if i%2 == 0 {
					continue
				}
				mu.Lock()
				unknown[id] = true
				mu.Unlock()
				if err := c.Delete(id); err != nil {
					return
				}
				mu.Lock()
				deleted[id] = true
				delete(unknown, id)
				mu.Unlock()
			}
		}
		var l *clustertest.Member
		w.Eventually("they have worked", func() bool {
			if at.Load() == 0 { // at first, and when their leader was deposed
				l = w.Leader()
				for worker := range 4 {
					addr := ""
					if s, err := w.Nodes[worker%len(w.Nodes)].Ask(`{"op":"status"}`); err == nil {
						addr = s.Clients
					}
					if c, err := beanstalk.DialTimeout("tcp", addr, servertest.Patience); err == nil {
						at.Add(1)
						working.Go(func() { work(c, worker) })
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			return len(there) > 100*(round+1)
		})
		l.Kill()
		over.Store(true) // for those at the other members, whose connections go on
		working.Wait()
		var c *beanstalk.Conn
		// peek asks whoever leads until it is answered.
		peek := func(id uint64) (body []byte, err error) {
			w.Eventually(fmt.Sprintf("peek %d is answered", id), func() bool {
				if c == nil {
					_, addr := w.Serving()
					if c, err = beanstalk.DialTimeout("tcp", addr, servertest.Patience); err != nil {
						c = nil
						return false
					}
				}
				body, err = c.Peek(id)
				if err == nil || errors.Is(err, beanstalk.ErrNotFound) {
					return true
				}
				_ = c.Close()
				c = nil
				return false
			})
			return body, err
		}
		for id, body := range there {
			got, err := peek(id)
			switch {
			case unknown[id]:
			case deleted[id] && !errors.Is(err, beanstalk.ErrNotFound):
				t.Errorf("round %d: job %d was deleted, and is %q, %v", round, id, got, err)
			case !deleted[id] && string(got) != body:
				t.Errorf("round %d: job %d is %q, %v; want %q", round, id, got, err, body)
			}
		}
		if c != nil {
			_ = c.Close()
		}
		l.Start() // its directory knows the others
	}
	w.Leader()
	if jobs, least := w.Settled(), len(there)-len(deleted)-len(unknown); jobs < uint64(least) {
		t.Errorf("%d jobs, at least %d were acknowledged", jobs, least)
	}
}

func TestAClusterOfOneRestartsWithEverything(t *testing.T) {
	t.Parallel()
	clustertest.Undisturbed(t, 1, func(t testing.TB, w *clustertest.Cluster) {
		w.StartAll()
		n := w.Leader()
		c := n.Dial()
		c.Send("use a", "put 1 0 60 1", "x", "put 2 100 60 1", "y", "put 3 0 60 1", "z", "reserve-job 3", "bury 3 7",
			"put 0 0 60 1", "w", "delete 4", "watch a", "reserve")
		c.Want("USING a", "INSERTED 1", "INSERTED 2", "INSERTED 3", "RESERVED 3 1", "z", "BURIED", "INSERTED 4", "DELETED", "WATCHING 2", "RESERVED 1 1", "x")
		check := func(when string) {
			t.Helper()
			c := w.Dial()
			for id, want := range map[string][]string{
				"1": {"tube: \"a\"", "state: ready", "pri: 1", "ttr: 60"},
				"2": {"state: delayed", "pri: 2", "delay: 100"},
				"3": {"state: buried", "pri: 7", "buries: 1"},
			} {
				got := c.Data("stats-job " + id)
				for _, line := range want {
					if !strings.Contains(got, "\n"+line+"\n") {
						t.Errorf("%s, job %s: no %s in %s", when, id, line, got)
					}
				}
			}
			c.Send("peek 4", "use b", "put 0 0 60 1", "n", "quit")
			c.Want("NOT_FOUND", "USING b")
			var next int
			if _, err := fmt.Sscanf(c.Line(), "INSERTED %d", &next); err != nil || next < 5 {
				t.Errorf("%s: the next id is %d, %v", when, next, err)
			}
		}
		n.Kill()
		n.Start("--cluster=" + w.List)
		check("after a kill")
		n.Process.Signal(syscall.SIGTERM)
		if code := n.Process.Wait(); code != servertest.ExitOK {
			t.Errorf("exit code %d", code)
		}
		n.Start() // the directory knows the members
		check("after a stop")
	})
}

func TestWhatAMemberRefusesToStartWith(t *testing.T) {
	t.Parallel()
	w := clustertest.NewCluster(t, 1)
	w.StartAll()
	n := w.Leader()
	running := servertest.Launch(t, "-b", n.Dir, "--node=n1="+n.Door.Addr(), "--cluster-listen=127.0.0.1:0", "-p0", "-l127.0.0.1")
	if code := running.Wait(); code != servertest.ExitBinlog || !strings.Contains(strings.Join(running.Log(), ""), "locked by process") {
		t.Errorf("a directory that is in use: exit code %d, %q", code, running.Log())
	}
	n.Process.Signal(syscall.SIGTERM)
	n.Process.Wait()
	plain := t.TempDir()
	if err := os.WriteFile(filepath.Join(plain, "trellis.0000000001"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	common := []string{"-p0", "-l127.0.0.1", "--cluster-listen=127.0.0.1:0"}
	for _, x := range []struct {
		what string
		args []string
		code int
		want string
	}{
		{"a member's directory for a server alone", []string{"-p0", "-l127.0.0.1", "-b", n.Dir}, servertest.ExitBinlog, "start with --node and --cluster"},
		{"another name", append(common, "-b", n.Dir, "--node=n2="+n.Door.Addr()), servertest.ExitBinlog, "--node says n2="},
		{"other members", append(common, "-b", n.Dir, "--node=n1="+n.Door.Addr(), "--cluster=n1="+n.Door.Addr()+",n2=127.0.0.1:1"), servertest.ExitFailed, "--cluster says"},
		{"a directory of a server alone", append(common, "-b", plain, "--node=n1=127.0.0.1:1", "--cluster=n1=127.0.0.1:1"), servertest.ExitBinlog, "trellis.0000000001"},
		{"no directory", append(common, "-b", plain+"/none", "--node=n1=127.0.0.1:1"), servertest.ExitBinlog, plain + "/none"},
		{"an address of another's", []string{"-p0", "-l127.0.0.1", "-b", n.Dir, "--node=n1=" + n.Door.Addr()}, servertest.ExitListen, "stop the process that has it"},
		{"a missing certificate", append(common, "-b", n.Dir, "--node=n1="+n.Door.Addr(), "--cluster-cert=/none", "--cluster-key=/none", "--cluster-ca=/none"), servertest.ExitUsage, "/none"},
	} {
		p := servertest.Launch(t, x.args...)
		code := p.Wait()
		if log := p.Log(); code != x.code || len(log) != 1 || !strings.Contains(log[0], x.want) {
			t.Errorf("%s: exit code %d, %q; want %d, %q", x.what, code, log, x.code, x.want)
		}
	}
}

// tree is the content of all files in a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A server alone has on disk what it had before there were clusters.
func TestAServerAloneHasNoFilesOfACluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := servertest.Start(t, "-p0", "-l127.0.0.1", "-b", dir)
	c := s.Dial(0)
	c.Send("put 0 0 9 1", "x")
	c.Want("INSERTED 1")
	s.Process.Signal(syscall.SIGTERM)
	s.Process.Wait()
	for name := range tree(t, dir) {
		if name != "/lock" && !strings.HasPrefix(name, "/trellis.") {
			t.Errorf("there is a file %s", name)
		}
	}
}
