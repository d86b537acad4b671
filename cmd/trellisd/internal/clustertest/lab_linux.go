package clustertest

import (
	"cmp"
	"context"
	"encoding/json"
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
	"sync"
	"testing"
	"time"

	peers "trellis/binlog/replica/wire"
	"trellis/binlog/replica/wire/wiretest"
	"trellis/cmd/internal/control"
	"trellis/cmd/trellisd/internal/servertest"
)

// TimeEnv is the environment variable with the time that tests of a cluster under faults take. Without
// it they cause each fault once.
const TimeEnv = "CLUSTER"

// SoakEnv is the environment variable with the time that make soak takes.
const SoakEnv = "SOAK"

// A Lab is a cluster of processes on this machine, with a Network between them. Its methods fail the test
// where they cannot do what they say, and wait until Ctx ends.
type Lab struct {
	T         *testing.T
	Ctx       context.Context
	Network   *Network
	Nodes     []*Node
	nodeCount int // nodes that there were

	mu      sync.Mutex
	clients []string // guarded by mu; addresses that clients try

	Launched []*servertest.Process // of all nodes, also those that have ended

	Program string   // that the nodes run; "" is servertest.Binary
	Env     []string // of the nodes, beside the test's own
}

// A Node is a member of a Lab, or was one, or is to become one.
type Node struct {
	*servertest.Process // nil if it does not run
	Name                string
	Addr                string // of its peers' port, for the others
	Listens             string // where it listens for them
	Client              string // address for clients
	Dir                 string
	Args                []string // more of its command line
}

// StartLab starts a new cluster and waits until it serves. dirs are where the nodes
// have their directories; those that are not given have temporary ones.
func StartLab(t *testing.T, size int, dirs ...string) *Lab {
	t.Helper()
	c := NewLab(t)
	for i := range size {
		dir := t.TempDir()
		if i < len(dirs) {
			dir = dirs[i]
		}
		c.Add(dir)
	}
	c.StartAll()
	return c
}

// NewLab makes a lab without nodes.
func NewLab(t *testing.T) *Lab {
	t.Helper()
	// A test that hangs ends with what was waited for.
	limit := 15 * servertest.Patience
	for _, env := range []string{TimeEnv, SoakEnv} {
		if d, err := time.ParseDuration(os.Getenv(env)); err == nil {
			limit += 2 * d
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	c := &Lab{T: t, Ctx: ctx, Network: NewNetwork()}
	t.Cleanup(c.Network.Close)
	return c
}

// Add adds a node, which does not run yet.
func (c *Lab) Add(parent string) *Node {
	c.T.Helper()
	c.nodeCount++
	n := &Node{Name: fmt.Sprint("n", c.nodeCount), Dir: filepath.Join(parent, "data"), Client: wiretest.ReservedAddr(c.T)}
	var err error
	if n.Addr, err = c.Network.Add(n.Name); err != nil {
		c.T.Fatal(err)
	}
	if err := os.Mkdir(n.Dir, 0o700); err != nil {
		c.T.Fatal(err)
	}
	c.Nodes = append(c.Nodes, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = append(c.clients, n.Client)
	return n
}

// StartAll starts all nodes and waits until one serves.
func (c *Lab) StartAll() {
	c.T.Helper()
	for _, n := range c.Nodes {
		c.Start(n)
	}
	c.Leader()
	for _, n := range c.Nodes { // the others elect a leader before the last one knows that it is a member
		c.Await(func() error { _, err := c.Status(n); return err })
	}
}

// Start starts a node's process and waits until it listens for its peers.
func (c *Lab) Start(n *Node) {
	t := c.T
	t.Helper()
	var all []string
	for _, x := range c.Nodes {
		all = append(all, x.Name+"="+x.Addr)
	}
	_, port, err := net.SplitHostPort(n.Client)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cmp.Or(c.Program, servertest.Binary), "-l127.0.0.1", "-p"+port, "-V", "--log-format=json",
		"-b", n.Dir,
		"--node", n.Name+"="+n.Addr, "--cluster", strings.Join(all, ","), "--cluster-listen=127.0.0.1:0")
	cmd.Args = append(cmd.Args, n.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	n.Process = servertest.LaunchCommand(t, cmd)
	c.Launched = append(c.Launched, n.Process)
	n.WaitText(`"listening for peers"`)
	for _, l := range n.Log() {
		var record struct{ Msg, Addr string }
		if json.Unmarshal([]byte(l), &record) == nil && record.Msg == "listening for peers" {
			n.Listens = record.Addr
		}
	}
	c.Network.Runs(n.Name, n.Listens, n.Cmd.Process.Pid)
}

// Stop ends a node's process at once.
func (c *Lab) Stop(n *Node) {
	n.Kill()
	c.Network.Runs(n.Name, "", 0)
	n.Process = nil
}

// Wipe empties the directory of a node that does not run.
func (c *Lab) Wipe(n *Node) {
	c.T.Helper()
	if err := errors.Join(os.RemoveAll(n.Dir), os.Mkdir(n.Dir, 0o700)); err != nil {
		c.T.Fatal(err)
	}
}

// Status asks a node, past the network between the nodes.
func (c *Lab) Status(n *Node) (control.Status, error) {
	return c.Ask(n, `{"op":"status"}`)
}

// Ask sends a control request to a node.
func (c *Lab) Ask(n *Node, request string) (s control.Status, err error) {
	if n.Process == nil {
		return s, errors.New("it does not run")
	}
	ctx, cancel := context.WithTimeout(c.Ctx, servertest.Patience)
	defer cancel()
	b, err := peers.Call(ctx, peers.ClientConfig{}, n.Listens, []byte(request))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// Await calls a function until it returns nil. Its last error fails the test when the time is over.
func (c *Lab) Await(so func() error) {
	c.T.Helper()
	for {
		err := so()
		if err == nil {
			return
		}
		select {
		case <-c.Ctx.Done():
			c.T.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Leader waits until a node of these serves, all if there are none, and returns it.
func (c *Lab) Leader(among ...*Node) (leader *Node) {
	c.T.Helper()
	if len(among) == 0 {
		among = c.Nodes
	}
	c.Await(func() error {
		var why error
		term := uint64(0)
		leader = nil
		for _, n := range among {
			s, err := c.Status(n)
			if err != nil {
				why = errors.Join(why, fmt.Errorf("%s: %w", n.Name, err))
			} else if s.Serves && s.Term > term {
				leader, term = n, s.Term
			}
		}
		if leader == nil {
			return errors.Join(errors.New("no node serves"), why)
		}
		return nil
	})
	return leader
}

// Others are all nodes but some.
func (c *Lab) Others(but ...*Node) []*Node {
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(n *Node) bool { return slices.Contains(but, n) })
}

// Agree waits until all nodes have applied the same entries, and compares their jobs.
func (c *Lab) Agree() {
	c.T.Helper()
	all, errs := make([]control.Status, len(c.Nodes)), make([]error, len(c.Nodes))
	c.Await(func() error {
		var asking sync.WaitGroup
		for i, n := range c.Nodes { // at once: it may take longer than until an idle leader records the time again
			asking.Go(func() { all[i], errs[i] = c.Ask(n, `{"op":"status","digest":true}`) })
		}
		asking.Wait()
		for i, n := range c.Nodes {
			if errs[i] != nil {
				return fmt.Errorf("%s: %w", n.Name, errs[i])
			}
			if s := &all[i]; s.Applied != s.Last || s.Applied != all[0].Applied {
				return fmt.Errorf("%s has applied %d of %d, %s %d", n.Name, s.Applied, s.Last, c.Nodes[0].Name, all[0].Applied)
			}
		}
		return nil
	})
	for i, s := range all {
		if s.Digest == nil || *s.Digest != *all[0].Digest {
			c.T.Fatalf("after entry %d %s has the jobs %+v, and %s %+v",
				s.Applied, c.Nodes[0].Name, all[0].Digest, c.Nodes[i].Name, s.Digest)
		}
		if s.Contradictions != 0 {
			c.T.Errorf("%s has met %d contradictions between records of reservations", c.Nodes[i].Name, s.Contradictions)
		}
	}
}

// Addrs are the addresses that clients try: those of all nodes that there were.
func (c *Lab) Addrs() (addrs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.clients)
}

// AnyOf is one of the nodes, by chance.
func AnyOf(ns []*Node) *Node { return ns[rand.IntN(len(ns))] }

// AwaitServed waits until a member answers a client whose session outlives a change of leader: its
// id begins with a number from the log.
func (c *Lab) AwaitServed(n *Node) {
	c.T.Helper()
	c.Await(func() error {
		conn, err := net.Dial("tcp", n.Client)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err = conn.SetDeadline(time.Now().Add(servertest.Patience)); err == nil {
			_, err = io.WriteString(conn, "stats-conn\r\nquit\r\n")
		}
		stats, readErr := io.ReadAll(conn)
		var id uint64
		if _, of, ok := strings.Cut(string(stats), "\nid: "); ok {
			_, _ = fmt.Sscan(of, &id)
		}
		if id < 1<<40 {
			return errors.Join(fmt.Errorf("%s says %q", n.Name, stats), err, readErr)
		}
		return nil
	})
}

// Logs returns an error unless the node has logged a text more often than before.
func (n *Node) Logs(text string, before int) error {
	if n.Logged(text) > before {
		return nil
	}
	return fmt.Errorf("%s has not logged %q", n.Name, text)
}

// Logged is how often the node has logged a text.
func (n *Node) Logged(text string) (times int) {
	for _, l := range n.Log() {
		if strings.Contains(l, text) {
			times++
		}
	}
	return times
}

// PlantedProgram builds a trellisd that can be told to make a mistake (see package replica).
func PlantedProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "trellisd")
	servertest.NoError(t, servertest.Build(program, "trellis/cmd/trellisd", "-tags=planted"))
	return program
}
