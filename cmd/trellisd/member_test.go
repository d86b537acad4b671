package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/beanstalkd/go-beanstalk"

	peerwire "trellis/binlog/replica/wire"
	"trellis/cmd/internal/control"
)

// A town is a cluster of processes on this machine. The address of each node is that of
// a forwarder of the test's, so that it is known before the node runs and stays when
// the node is started anew.
type town struct {
	t     testing.TB
	nodes []*townsman
	list  string // of --cluster

	launched []*process // for all nodes
}

// A townsman is one node of a town.
type townsman struct {
	town *town
	name string
	dir  string
	door *door
	args []string // beside those that all have

	program string   // "" is the usual one
	env     []string // beside the test's own

	p    *process // nil while it does not run
	http string   // its address
}

func newTown(t testing.TB, nodes int) *town {
	t.Helper()
	w := &town{t: t}
	var list []string
	for i := range nodes {
		n := &townsman{town: w, name: fmt.Sprint("n", i+1), dir: t.TempDir(), door: newDoor(t)}
		w.nodes = append(w.nodes, n)
		list = append(list, n.name+"="+n.door.addr())
	}
	w.list = strings.Join(list, ",")
	return w
}

// start starts a node and returns when it answers the others.
func (n *townsman) start(args ...string) {
	t := n.town.t
	t.Helper()
	all := []string{
		"-l127.0.0.1", "-p0", "-V", "--log-format=json", "--http=127.0.0.1:0", "-b", n.dir,
		"--node=" + n.name + "=" + n.door.addr(), "--cluster-listen=127.0.0.1:0",
	}
	all = append(append(all, n.args...), args...)
	cmd := exec.Command(cmp.Or(n.program, binary), all...)
	cmd.Env = append(os.Environ(), n.env...)
	n.p = launchCommand(t, cmd)
	n.town.launched = append(n.town.launched, n.p)
	n.p.waitText(`"listening for peers"`)
	n.p.waitText(`"listening for HTTP"`)
	n.http = n.last("listening for HTTP")
	n.door.lead(n.last("listening for peers"))
}

func (w *town) startAll() {
	w.t.Helper()
	for _, n := range w.nodes {
		n.start("--cluster=" + w.list)
	}
	w.eventually("all nodes are members", func() bool {
		for _, n := range w.nodes {
			if _, err := n.ask(`{"op":"status"}`); err != nil {
				return false
			}
		}
		return true
	})
}

// last is the address in the last line of the log with a message, "" if there is none.
func (n *townsman) last(msg string) (addr string) {
	for _, l := range n.p.log() {
		var record struct{ Msg, Addr string }
		if json.Unmarshal([]byte(l), &record) == nil && record.Msg == msg {
			addr = record.Addr
		}
	}
	return addr
}

// kill ends a node without a word.
func (n *townsman) kill() {
	n.door.lead("")
	n.p.kill()
	n.p = nil
}

// readyz is what the node says of its readiness.
func (n *townsman) readyz() (status int, text string) { return n.probe("/readyz") }

// leaderz is what the node says of whether it leads.
func (n *townsman) leaderz() (status int, text string) { return n.probe("/leaderz") }

func (n *townsman) probe(path string) (status int, text string) {
	res, err := http.Get("http://" + n.http + path)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, strings.TrimSpace(string(b))
}

// electionPatience is how long a change of leader may take on a machine that does much else.
const electionPatience = 3 * patience

// eventually waits for a condition.
func (w *town) eventually(what string, cond func() bool) {
	w.t.Helper()
	for end := time.Now().Add(electionPatience); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			for _, n := range w.nodes {
				if n.p != nil {
					ready, why := n.readyz()
					leads, text := n.leaderz()
					w.t.Logf("%s: %d %s, %d %s", n.name, ready, why, leads, text)
				}
			}
			w.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// leader waits until a node leads, and returns it.
func (w *town) leader() (leads *townsman) {
	w.t.Helper()
	w.eventually("a node leads", func() bool {
		for _, n := range w.nodes {
			if n.p != nil {
				if status, _ := n.leaderz(); status == http.StatusOK {
					leads = n
					return true
				}
			}
		}
		return false
	})
	return leads
}

// ask sends a control request to a node.
func (n *townsman) ask(request string) (s control.Status, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := peerwire.Call(ctx, peerwire.ClientConfig{}, n.door.addr(), []byte(request))
	if err == nil {
		err = json.Unmarshal(resp, &s)
	}
	return s, err
}

// settled waits until all nodes that run hold the same jobs, and returns how many.
func (w *town) settled() (jobs uint64) {
	w.t.Helper()
	w.eventually("all nodes have the same", func() bool {
		var first *control.Status
		for _, n := range w.nodes {
			if n.p == nil {
				continue
			}
			s, err := n.ask(`{"op":"status","digest":true}`)
			if err != nil || s.Digest == nil {
				return false
			}
			if s.Contradictions != 0 {
				w.t.Fatalf("%d records of reservations contradict those before them", s.Contradictions)
			}
			if first == nil {
				first = &s
			}
			if s.Applied != first.Applied || *s.Digest != *first.Digest {
				return false
			}
		}
		jobs = first.Digest.Jobs
		return true
	})
	return jobs
}

// A door forwards connections to a process, wherever that listens.
type door struct {
	l      net.Listener
	target atomic.Pointer[string] // "" or nil if nobody is at home
}

func newDoor(t testing.TB) *door { return newDoorOn(t, "127.0.0.1") }

// newDoorOn makes a door with an address of its own.
func newDoorOn(t testing.TB, host string) *door {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	d := &door{l: l}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { d.pass(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return d
}

func (d *door) addr() string { return d.l.Addr().String() }

// lead has connections to come lead to an address.
func (d *door) lead(addr string) { d.target.Store(&addr) }

// pass forwards a connection until one side ends.
func (d *door) pass(c net.Conn) {
	defer c.Close()
	target := d.target.Load()
	if target == nil || *target == "" {
		return
	}
	there, err := net.Dial("tcp", *target)
	if err != nil {
		return
	}
	defer there.Close()
	var both sync.WaitGroup
	copyTo := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.Close()
		_ = from.Close()
	}
	both.Go(func() { copyTo(there, c) })
	both.Go(func() { copyTo(c, there) })
	both.Wait()
}

// clients is where the node serves clients.
func (n *townsman) clients() (addr string) {
	n.town.t.Helper()
	n.town.eventually(n.name+" says where it serves clients", func() bool {
		s, err := n.ask(`{"op":"status"}`)
		addr = s.Clients
		return err == nil && addr != ""
	})
	return addr
}

// serving is a node that leads, and where it serves clients; "" if it just does not any more.
func (w *town) serving() (n *townsman, addr string) {
	w.t.Helper()
	n = w.leader()
	s, err := n.ask(`{"op":"status"}`)
	if err != nil {
		return n, ""
	}
	return n, s.Clients
}

// dial connects to whoever leads.
func (w *town) dial() *client {
	w.t.Helper()
	var c *client
	w.eventually("clients are served", func() bool {
		_, addr := w.serving()
		conn, err := net.DialTimeout("tcp", addr, patience)
		if err == nil {
			c = clientOn(w.t, conn)
		}
		return err == nil
	})
	return c
}

// dial connects to the node that leads.
func (n *townsman) dial() *client {
	n.town.t.Helper()
	return dial(n.town.t, address{"tcp", n.clients()})
}

// Clients of a stock library put and delete jobs at all members, and the leader is killed under them.
// What was acknowledged is so at the next leader, and in the end on all nodes.
func TestNothingAcknowledgedIsLostWhenTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	w := newTown(t, 3)
	w.startAll()
	var (
		mu      sync.Mutex
		there   = map[uint64]string{} // acknowledged puts
		deleted = map[uint64]bool{}   // acknowledged deletes
		unknown = map[uint64]bool{}   // deletes without an answer
	)
	rounds := 1
	if proof {
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
		var l *townsman
		w.eventually("they have worked", func() bool {
			if at.Load() == 0 { // at first, and when their leader was deposed
				l = w.leader()
				for worker := range 4 {
					addr := ""
					if s, err := w.nodes[worker%len(w.nodes)].ask(`{"op":"status"}`); err == nil {
						addr = s.Clients
					}
					if c, err := beanstalk.DialTimeout("tcp", addr, patience); err == nil {
						at.Add(1)
						working.Go(func() { work(c, worker) })
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			return len(there) > 100*(round+1)
		})
		l.kill()
		over.Store(true) // for those at the other members, whose connections go on
		working.Wait()
		var c *beanstalk.Conn
		// peek asks whoever leads until it is answered.
		peek := func(id uint64) (body []byte, err error) {
			w.eventually(fmt.Sprintf("peek %d is answered", id), func() bool {
				if c == nil {
					_, addr := w.serving()
					if c, err = beanstalk.DialTimeout("tcp", addr, patience); err != nil {
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
		l.start() // its directory knows the others
	}
	w.leader()
	if jobs, least := w.settled(), len(there)-len(deleted)-len(unknown); jobs < uint64(least) {
		t.Errorf("%d jobs, at least %d were acknowledged", jobs, least)
	}
}

func TestAClusterOfOneRestartsWithEverything(t *testing.T) {
	t.Parallel()
	undisturbed(t, 1, func(t testing.TB, w *town) {
		w.startAll()
		n := w.leader()
		c := n.dial()
		c.send("use a", "put 1 0 60 1", "x", "put 2 100 60 1", "y", "put 3 0 60 1", "z", "reserve-job 3", "bury 3 7",
			"put 0 0 60 1", "w", "delete 4", "watch a", "reserve")
		c.want("USING a", "INSERTED 1", "INSERTED 2", "INSERTED 3", "RESERVED 3 1", "z", "BURIED", "INSERTED 4", "DELETED", "WATCHING 2", "RESERVED 1 1", "x")
		check := func(when string) {
			t.Helper()
			c := w.dial()
			for id, want := range map[string][]string{
				"1": {"tube: \"a\"", "state: ready", "pri: 1", "ttr: 60"},
				"2": {"state: delayed", "pri: 2", "delay: 100"},
				"3": {"state: buried", "pri: 7", "buries: 1"},
			} {
				got := c.data("stats-job " + id)
				for _, line := range want {
					if !strings.Contains(got, "\n"+line+"\n") {
						t.Errorf("%s, job %s: no %s in %s", when, id, line, got)
					}
				}
			}
			c.send("peek 4", "use b", "put 0 0 60 1", "n", "quit")
			c.want("NOT_FOUND", "USING b")
			var next int
			if _, err := fmt.Sscanf(c.line(), "INSERTED %d", &next); err != nil || next < 5 {
				t.Errorf("%s: the next id is %d, %v", when, next, err)
			}
		}
		n.kill()
		n.start("--cluster=" + w.list)
		check("after a kill")
		n.p.signal(syscall.SIGTERM)
		if code := n.p.wait(); code != exitOK {
			t.Errorf("exit code %d", code)
		}
		n.start() // the directory knows the members
		check("after a stop")
	})
}

func TestWhatAMemberRefusesToStartWith(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.startAll()
	n := w.leader()
	running := launch(t, "-b", n.dir, "--node=n1="+n.door.addr(), "--cluster-listen=127.0.0.1:0", "-p0", "-l127.0.0.1")
	if code := running.wait(); code != exitBinlog || !strings.Contains(strings.Join(running.log(), ""), "locked by process") {
		t.Errorf("a directory that is in use: exit code %d, %q", code, running.log())
	}
	n.p.signal(syscall.SIGTERM)
	n.p.wait()
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
		{"a member's directory for a server alone", []string{"-p0", "-l127.0.0.1", "-b", n.dir}, exitBinlog, "start with --node and --cluster"},
		{"another name", append(common, "-b", n.dir, "--node=n2="+n.door.addr()), exitBinlog, "--node says n2="},
		{"other members", append(common, "-b", n.dir, "--node=n1="+n.door.addr(), "--cluster=n1="+n.door.addr()+",n2=127.0.0.1:1"), exitFailed, "--cluster says"},
		{"a directory of a server alone", append(common, "-b", plain, "--node=n1=127.0.0.1:1", "--cluster=n1=127.0.0.1:1"), exitBinlog, "trellis.0000000001"},
		{"no directory", append(common, "-b", plain+"/none", "--node=n1=127.0.0.1:1"), exitBinlog, plain + "/none"},
		{"an address of another's", []string{"-p0", "-l127.0.0.1", "-b", n.dir, "--node=n1=" + n.door.addr()}, exitListen, "stop the process that has it"},
		{"a missing certificate", append(common, "-b", n.dir, "--node=n1="+n.door.addr(), "--cluster-cert=/none", "--cluster-key=/none", "--cluster-ca=/none"), exitUsage, "/none"},
	} {
		p := launch(t, x.args...)
		code := p.wait()
		if log := p.log(); code != x.code || len(log) != 1 || !strings.Contains(log[0], x.want) {
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
	s := start(t, "-p0", "-l127.0.0.1", "-b", dir)
	c := s.dial(0)
	c.send("put 0 0 9 1", "x")
	c.want("INSERTED 1")
	s.process.signal(syscall.SIGTERM)
	s.process.wait()
	for name := range tree(t, dir) {
		if name != "/lock" && !strings.HasPrefix(name, "/trellis.") {
			t.Errorf("there is a file %s", name)
		}
	}
}
