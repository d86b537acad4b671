package clustertest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	peerwire "trellis/binlog/replica/wire"
	"trellis/cmd/internal/control"
	"trellis/cmd/trellisd/internal/servertest"
)

// A Cluster is members that run as processes on this machine. The address of each is that of a Door, so
// that it is known before the member runs and stays when it is started again.
type Cluster struct {
	T     testing.TB
	Nodes []*Member
	List  string // of --cluster

	launched []*servertest.Process // of all members, also those that have ended
}

// A Member is one member of a Cluster, or a node that is to become one.
type Member struct {
	Cluster *Cluster
	Name    string
	Dir     string
	Door    *Door
	Args    []string // beside those of all members

	Program string   // "" is servertest.Binary
	Env     []string // beside the test's own

	Process *servertest.Process // nil while it does not run
	HTTP    string              // where it serves HTTP
}

// NewCluster makes a cluster of members that do not run yet.
func NewCluster(t testing.TB, nodes int) *Cluster {
	t.Helper()
	w := &Cluster{T: t}
	var list []string
	for i := range nodes {
		n := &Member{Cluster: w, Name: fmt.Sprint("n", i+1), Dir: t.TempDir(), Door: newDoor(t)}
		w.Nodes = append(w.Nodes, n)
		list = append(list, n.Name+"="+n.Door.Addr())
	}
	w.List = strings.Join(list, ",")
	return w
}

// Start starts a member and returns when it listens for the others.
func (n *Member) Start(args ...string) {
	t := n.Cluster.T
	t.Helper()
	all := []string{
		"-l127.0.0.1", "-p0", "-V", "--log-format=json", "--http=127.0.0.1:0", "-b", n.Dir,
		"--node=" + n.Name + "=" + n.Door.Addr(), "--cluster-listen=127.0.0.1:0",
	}
	all = append(append(all, n.Args...), args...)
	cmd := exec.Command(cmp.Or(n.Program, servertest.Binary), all...)
	cmd.Env = append(os.Environ(), n.Env...)
	n.Process = servertest.LaunchCommand(t, cmd)
	n.Cluster.launched = append(n.Cluster.launched, n.Process)
	n.Process.WaitText(`"listening for peers"`)
	n.Process.WaitText(`"listening for HTTP"`)
	n.HTTP = n.Last("listening for HTTP")
	n.Door.Lead(n.Last("listening for peers"))
}

// StartAll starts all members and returns when they answer each other.
func (w *Cluster) StartAll() {
	w.T.Helper()
	for _, n := range w.Nodes {
		n.Start("--cluster=" + w.List)
	}
	w.Eventually("all nodes are members", func() bool {
		for _, n := range w.Nodes {
			if _, err := n.Ask(`{"op":"status"}`); err != nil {
				return false
			}
		}
		return true
	})
}

// Last is the address in the last line of the log with a message, "" if there is none.
func (n *Member) Last(msg string) (addr string) {
	for _, l := range n.Process.Log() {
		var record struct{ Msg, Addr string }
		if json.Unmarshal([]byte(l), &record) == nil && record.Msg == msg {
			addr = record.Addr
		}
	}
	return addr
}

// Kill ends a node without a word.
func (n *Member) Kill() {
	n.Door.Lead("")
	n.Process.Kill()
	n.Process = nil
}

// readyz is what the node says of its readiness.
func (n *Member) readyz() (status int, text string) { return n.probe("/readyz") }

// Leaderz is what the node says of its leadership.
func (n *Member) Leaderz() (status int, text string) { return n.probe("/leaderz") }

func (n *Member) probe(path string) (status int, text string) {
	res, err := http.Get("http://" + n.HTTP + path)
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

// ElectionPatience is how long a change of leader may take on a machine that does much else.
const ElectionPatience = 3 * servertest.Patience

// Eventually waits for a condition.
func (w *Cluster) Eventually(what string, cond func() bool) {
	w.T.Helper()
	for end := time.Now().Add(ElectionPatience); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			for _, n := range w.Nodes {
				if n.Process != nil {
					ready, why := n.readyz()
					leads, text := n.Leaderz()
					w.T.Logf("%s: %d %s, %d %s", n.Name, ready, why, leads, text)
				}
			}
			w.T.Fatalf("waited in vain until %s", what)
		}
	}
}

// Leader waits until a node leads, and returns it.
func (w *Cluster) Leader() (leads *Member) {
	w.T.Helper()
	w.Eventually("a node leads", func() bool {
		for _, n := range w.Nodes {
			if n.Process != nil {
				if status, _ := n.Leaderz(); status == http.StatusOK {
					leads = n
					return true
				}
			}
		}
		return false
	})
	return leads
}

// Standbys waits until all other members serve clients too, and returns them.
func (w *Cluster) Standbys(leader *Member) []*Member {
	w.T.Helper()
	others := slices.DeleteFunc(slices.Clone(w.Nodes), func(n *Member) bool { return n == leader || n.Process == nil })
	w.Eventually("all members serve clients", func() bool {
		return !slices.ContainsFunc(others, func(n *Member) bool {
			status, _ := n.readyz()
			return status != http.StatusOK
		})
	})
	return others
}

// Ask sends a control request to a node.
func (n *Member) Ask(request string) (s control.Status, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), servertest.Patience)
	defer cancel()
	resp, err := peerwire.Call(ctx, peerwire.ClientConfig{}, n.Door.Addr(), []byte(request))
	if err == nil {
		err = json.Unmarshal(resp, &s)
	}
	return s, err
}

// Settled waits until all nodes that run hold the same jobs, and returns how many.
func (w *Cluster) Settled() (jobs uint64) {
	w.T.Helper()
	w.Eventually("all nodes have the same", func() bool {
		var first *control.Status
		for _, n := range w.Nodes {
			if n.Process == nil {
				continue
			}
			s, err := n.Ask(`{"op":"status","digest":true}`)
			if err != nil || s.Digest == nil {
				return false
			}
			if s.Contradictions != 0 {
				w.T.Fatalf("%d records of reservations contradict those before them", s.Contradictions)
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

// Clients is where the node serves clients.
func (n *Member) Clients() (addr string) {
	n.Cluster.T.Helper()
	n.Cluster.Eventually(n.Name+" says where it serves clients", func() bool {
		s, err := n.Ask(`{"op":"status"}`)
		addr = s.Clients
		return err == nil && addr != ""
	})
	return addr
}

// Serving is the leader, and where it serves clients; "" if it has lost its leadership meanwhile.
func (w *Cluster) Serving() (n *Member, addr string) {
	w.T.Helper()
	n = w.Leader()
	s, err := n.Ask(`{"op":"status"}`)
	if err != nil {
		return n, ""
	}
	return n, s.Clients
}

// Dial connects to whoever leads.
func (w *Cluster) Dial() *servertest.Client {
	w.T.Helper()
	var c *servertest.Client
	w.Eventually("clients are served", func() bool {
		_, addr := w.Serving()
		conn, err := net.DialTimeout("tcp", addr, servertest.Patience)
		if err == nil {
			c = servertest.ClientOn(w.T, conn)
		}
		return err == nil
	})
	return c
}

// Dial connects to the member.
func (n *Member) Dial() *servertest.Client {
	n.Cluster.T.Helper()
	return servertest.Dial(n.Cluster.T, servertest.AddrOn("tcp", n.Clients()))
}

// Grow adds a node that is no member yet.
func (w *Cluster) Grow() *Member {
	w.T.Helper()
	n := &Member{Cluster: w, Name: fmt.Sprint("n", len(w.Nodes)+1), Dir: w.T.TempDir(), Door: newDoor(w.T)}
	w.Nodes = append(w.Nodes, n)
	return n
}

// AskLeader sends a request to whoever leads, until it is done.
func (w *Cluster) AskLeader(request string) {
	w.T.Helper()
	w.Eventually(request, func() bool {
		l := w.Leader()
		if _, err := l.Ask(request); err == nil {
			return true
		}
		s, err := l.Ask(`{"op":"status"}`)
		members := map[string]bool{}
		for _, m := range s.Members {
			members[m.Name] = m.Voter
		}
		return err == nil && s.Serves && IsDone(request, l.Name, members)
	})
}

// IsDone says that the leader, and the members, each with true if it votes, are as a request wants them. A
// leader that did it may have lost its leadership before it could answer.
func IsDone(request, leader string, members map[string]bool) bool {
	var r control.Request
	if json.Unmarshal([]byte(request), &r) != nil {
		return false
	}
	name, _, _ := strings.Cut(r.Node, "=")
	votes, is := members[name]
	return r.Op == control.OpAdd && votes || r.Op == control.OpRemove && !is ||
		r.Op == control.OpTransfer && leader == r.To
}
