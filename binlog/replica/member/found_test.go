package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"trellis/binlog/vfs/faultfs"
)

// town is a set of nodes that reach each other by calls within the process.
type town struct {
	t     *testing.T
	nodes []Node

	mu     sync.Mutex
	disks  map[string]*faultfs.FS // by name of the node
	stores map[string]*Store      // of nodes that run
	lists  map[string][]Node      // --cluster of nodes that have another
	logs   map[string]*strings.Builder
}

func newTown(t *testing.T, n int) *town {
	w := &town{t: t, disks: map[string]*faultfs.FS{}, stores: map[string]*Store{}, lists: map[string][]Node{}, logs: map[string]*strings.Builder{}}
	for i := range n {
		w.nodes = append(w.nodes, w.node(i+1))
	}
	return w
}

func (w *town) node(i int) Node {
	n := Node{fmt.Sprintf("n%d", i), fmt.Sprintf("h%d:1", i)}
	w.disks[n.Name] = faultfs.New("/d")
	w.logs[n.Name] = &strings.Builder{}
	return n
}

func (w *town) list(n Node) []Node {
	if l := w.lists[n.Name]; l != nil {
		return l
	}
	return w.nodes
}

// call reaches the node at an address, if it runs.
func (w *town) call(_ context.Context, addr string, req []byte) ([]byte, error) {
	w.mu.Lock()
	var s *Store
	for _, t := range w.stores {
		if t.self.Addr == addr {
			s = t
		}
	}
	w.mu.Unlock()
	if s == nil {
		return nil, errors.New("connection refused")
	}
	resp, ok, err := s.Control(req, nil)
	if !ok {
		return nil, errors.New("not a request of package member")
	}
	return resp, err
}

// run is one life of a node's process, up to an error.
func (w *town) run(ctx context.Context, n Node) (Identity, error) {
	w.mu.Lock()
	fsys := w.disks[n.Name]
	w.mu.Unlock()
	s, err := Open(fsys, "/d", n, w.list(n))
	if err != nil {
		return Identity{}, err
	}
	w.mu.Lock()
	w.stores[n.Name] = s
	log := slog.New(slog.NewTextHandler(w.logs[n.Name], nil))
	w.mu.Unlock()
	return s.Settle(ctx, w.call, log, func(id Identity) error { return w.prepare(fsys, id) })
}

// prepare makes a file, as a node makes its entry log, and writes its identity there.
func (w *town) prepare(fsys *faultfs.FS, id Identity) error {
	_ = fsys.Remove("/d/entries")
	f, err := fsys.Create("/d/entries", 0)
	if err != nil {
		return err
	}
	b, err := encode(id)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	d, err := fsys.OpenDir("/d")
	if err != nil {
		return err
	}
	return d.Sync()
}

// end stops a node's process.
func (w *town) end(n Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.stores, n.Name)
}

// check fails the test if Joined nodes are of two clusters, or of one that a member
// could have forgotten.
func (w *town) check() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var c *Cluster
	for _, s := range w.stores {
		id := s.Identity()
		if id.State != Joined {
			continue
		}
		if c != nil && c.ID != id.Cluster.ID {
			w.t.Fatalf("two clusters: %s and %s", c.ID, id.Cluster.ID)
		}
		c = &id.Cluster
	}
	if c == nil {
		return
	}
	for name, fsys := range w.disks {
		id, err := Read(fsys, "/d")
		if errors.Is(err, faultfs.ErrOff) {
			continue
		}
		if err != nil || id.Cluster.ID != c.ID {
			w.t.Fatalf("cluster %s was founded, and %s has %+v, %v", c.ID, name, id, err)
		}
	}
}

// settleAll runs the nodes, each after its delay, restarts those that crash, and returns
// their identities when all belong to a cluster.
func (w *town) settleAll(rng *rand.Rand, delays []time.Duration) map[string]Identity {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	ids := map[string]Identity{}
	var all sync.WaitGroup
	for i, n := range w.nodes {
		all.Go(func() {
			time.Sleep(delays[i])
			for {
				id, err := w.run(ctx, n)
				if err == nil {
					w.mu.Lock()
					ids[n.Name] = id
					w.mu.Unlock()
					return
				}
				w.end(n)
				if !errors.Is(err, faultfs.ErrOff) {
					w.t.Errorf("%s: %v", n, err)
					return
				}
				w.mu.Lock()
				w.disks[n.Name] = w.disks[n.Name].PowerCut(rng)
				w.mu.Unlock()
				time.Sleep(time.Second)
			}
		})
	}
	all.Wait()
	w.check()
	return ids
}

func sameCluster(t *testing.T, ids map[string]Identity, n int) {
	t.Helper()
	var first Identity
	for _, id := range ids {
		first = id
	}
	seen := map[ID]bool{}
	for name, id := range ids {
		if id.State != Joined || id.Cluster.ID != first.Cluster.ID || !slices.Equal(id.Cluster.Members, first.Cluster.Members) ||
			id.Member().Name != name || id.Member().Incarnation != id.Incarnation || seen[id.Self] {
			t.Fatalf("%s is %+v, and another is %+v", name, id, first)
		}
		seen[id.Self] = true
	}
	if len(seen) != n {
		t.Fatalf("%d members of %d", len(seen), n)
	}
}

func TestAClusterIsFoundedInAnyOrder(t *testing.T) {
	for n := 1; n <= 5; n++ {
		for seed := range uint64(6) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, uint64(n)))
				w := newTown(t, n)
				delays := make([]time.Duration, n)
				for i := range delays {
					delays[i] = time.Duration(rng.IntN(10)) * time.Second
				}
				sameCluster(t, w.settleAll(rng, delays), n)
			})
		}
	}
}

// Every call that any of the nodes makes to its disk is the one during which its power
// goes, with several outcomes of what is left on the disk.
func TestAFoundingSurvivesACrashAtAnyPoint(t *testing.T) {
	outcomes := uint64(1)
	if proof {
		outcomes = 3
	}
	for victim := range 3 {
		for at := 1; ; at++ {
			crashed := false
			for seed := range outcomes {
				synctest.Test(t, func(t *testing.T) {
					rng := rand.New(rand.NewPCG(seed, uint64(at)))
					w := newTown(t, 3)
					w.disks[w.nodes[victim].Name].Hook(func(c faultfs.Call) faultfs.Fault {
						crashed = crashed || c.N == at
						return faultfs.Fault{Off: c.N == at}
					})
					delays := []time.Duration{0, 0, 0}
					delays[rng.IntN(3)] = time.Second
					sameCluster(t, w.settleAll(rng, delays), 3)
				})
			}
			if !crashed {
				if at < 20 {
					t.Fatalf("a founding made only %d calls", at)
				}
				break
			}
		}
	}
}

func TestAllCrashAgainAndAgainWhileTheyFound(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			w := newTown(t, 3)
			for _, n := range w.nodes {
				at := map[int]bool{}
				for range 4 {
					at[1+rng.IntN(40)] = true
				}
				w.disks[n.Name].Hook(func(c faultfs.Call) faultfs.Fault { return faultfs.Fault{Off: at[c.N]} })
			}
			sameCluster(t, w.settleAll(rng, make([]time.Duration, 3)), 3)
		})
	}
}

// background runs a node until the test ends or stop is called.
func (w *town) background(n Node) (stop func(), result func() (Identity, error)) {
	ctx, cancel := context.WithCancel(w.t.Context())
	type end struct {
		id  Identity
		err error
	}
	done := make(chan end, 1)
	go func() {
		id, err := w.run(ctx, n)
		done <- end{id, err}
	}()
	return func() { cancel(); w.end(n) }, func() (Identity, error) { e := <-done; return e.id, e.err }
}

func (w *town) state(n Node) Identity {
	id, err := Read(w.disks[n.Name], "/d")
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
	return id
}

func (w *town) waits(n Node, why string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.logs[n.Name].String()
	if !strings.Contains(log, why) {
		w.t.Errorf("%s said\n%s, and not %q", n, log, why)
	}
	before := ""
	for line := range strings.Lines(log) {
		_, line, _ = strings.Cut(line, "level=")
		if line == before {
			w.t.Errorf("%s says again: %s", n, line)
		}
		before = line
	}
}

func TestANodeWithoutTheOthersFoundsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 3)
		stop1, _ := w.background(w.nodes[0])
		stop2, _ := w.background(w.nodes[1])
		time.Sleep(time.Minute)
		w.waits(w.nodes[0], "n3=h3:1: connection refused")
		w.waits(w.nodes[1], "n3=h3:1: connection refused")
		for _, n := range w.nodes[:2] {
			if id := w.state(n); id.State != Empty {
				t.Errorf("%s is %+v", n, id)
			}
		}
		stop1()
		stop2()
		synctest.Wait()
	})
}

func TestAWipedNodeDoesNotComeBackAsItself(t *testing.T) {
	for victim := range 3 {
		synctest.Test(t, func(t *testing.T) {
			w := newTown(t, 3)
			ids := w.settleAll(rand.New(rand.NewPCG(1, 1)), make([]time.Duration, 3))
			n := w.nodes[victim]
			w.end(n)
			w.disks[n.Name] = faultfs.New("/d")
			stop, result := w.background(n)
			time.Sleep(time.Minute)
			w.waits(n, "belongs to cluster "+ids[n.Name].Cluster.ID.String()+", of which "+n.Name+" was a member with another directory")
			if id := w.state(n); id.State != Empty || id.Incarnation == ids[n.Name].Incarnation {
				t.Errorf("it is %+v, and was %+v", id, ids[n.Name])
			}
			stop()
			if _, err := result(); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// What the operator reads when the nodes cannot become one cluster. All of them go on
// when the cause is gone.
func TestListsThatDisagreeFoundNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 3)
		w.lists["n3"] = []Node{w.nodes[1], w.nodes[0], w.nodes[2]}
		var stops []func()
		for _, n := range w.nodes {
			stop, _ := w.background(n)
			stops = append(stops, stop)
		}
		time.Sleep(time.Minute)
		w.waits(w.nodes[0], "--cluster of n3 says n2=h2:1,n1=h1:1,n3=h3:1, and here n1=h1:1,n2=h2:1,n3=h3:1")
		w.waits(w.nodes[2], "and here n2=h2:1,n1=h1:1,n3=h3:1")
		for i, n := range w.nodes {
			if id := w.state(n); id.State != Empty {
				t.Errorf("%s is %+v", n, id)
			}
			stops[i]()
		}
		synctest.Wait()
		delete(w.lists, "n3")
		sameCluster(t, w.settleAll(rand.New(rand.NewPCG(1, 1)), make([]time.Duration, 3)), 3)
	})
}

func TestANodeAtAnothersAddressIsNotTakenForIt(t *testing.T) {
	nodes := []Node{{"n1", "h1:1"}, {"n2", "h2:1"}}
	s := decide(nodes[0], nodes, Identity{Incarnation: 1}, []reply{{}, {Answer: Answer{Node: Node{"n3", "h2:1"}, Nodes: nodes, Identity: Identity{Incarnation: 2}}}})
	if s.do != wait || s.why != "at h2:1 is the node n3=h2:1, not n2=h2:1" {
		t.Fatalf("%+v", s)
	}
}

// A node that is emptied while the cluster is being founded: the others take the founder's
// next proposal in place of the first.
func TestANodeThatIsEmptiedDuringTheFoundingIsAskedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 3)
		// n3 does not take the proposal: its disk hangs up at the second write of the mark.
		writes := 0
		w.disks["n3"].Hook(func(c faultfs.Call) faultfs.Fault {
			if c.Op == "write" {
				writes++
			}
			return faultfs.Fault{Off: writes == 2}
		})
		var stops []func()
		for _, n := range w.nodes {
			stop, _ := w.background(n)
			stops = append(stops, stop)
		}
		time.Sleep(10 * time.Second)
		first := w.state(w.nodes[1])
		if first.State != Proposed || w.state(w.nodes[0]).State != Proposed {
			t.Fatalf("n2 is %+v", first)
		}
		for _, stop := range stops {
			stop()
		}
		synctest.Wait()
		w.disks["n3"] = faultfs.New("/d")
		ids := w.settleAll(rand.New(rand.NewPCG(1, 1)), make([]time.Duration, 3))
		sameCluster(t, ids, 3)
		if ids["n2"].Cluster.ID == first.Cluster.ID || ids["n2"].Round != 2 {
			t.Fatalf("%+v, after %+v", ids["n2"], first)
		}
	})
}

func TestAFounderThatIsEmptiedDuringTheFoundingDoesNotGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 2)
		writes := 0
		w.disks["n1"].Hook(func(c faultfs.Call) faultfs.Fault {
			if c.Op == "write" {
				writes++
			}
			return faultfs.Fault{Off: writes == 3} // that of prepare
		})
		stop1, _ := w.background(w.nodes[0])
		stop2, _ := w.background(w.nodes[1])
		time.Sleep(10 * time.Second)
		stop1()
		w.disks["n1"] = faultfs.New("/d")
		stop1, _ = w.background(w.nodes[0])
		time.Sleep(10 * time.Second)
		w.waits(w.nodes[0], "n2=h2:1 has the proposal of a n1 whose directory was emptied since; empty its directory too")
		w.waits(w.nodes[1], "n1=h1:1 has proposed a cluster, and its directory was emptied since; empty this directory too")
		if w.state(w.nodes[0]).State != Empty || w.state(w.nodes[1]).State != Proposed {
			t.Error("a cluster was founded")
		}
		stop1()
		stop2()
	})
}

// Random histories of foundings with crashes, wipes, answers that are old, and proposals
// that come late: whenever a node is Joined, every member of its cluster that still has the
// directory it had then has that cluster's identity.
func TestNoHistoryFoundsTwoClustersOrHalfOfOne(t *testing.T) {
	histories, foundings := 50, 0
	if proof {
		histories = 400
	}
	for seed := range uint64(histories) {
		h := newHistory(t, seed)
		for range 200 {
			h.step()
		}
		for _, n := range h.nodes {
			if n.store.Identity().State == Joined {
				foundings++
				break
			}
		}
	}
	if foundings < histories/10 {
		t.Errorf("only %d of %d histories founded a cluster", foundings, histories)
	}
}

type history struct {
	t     *testing.T
	rng   *rand.Rand
	list  []Node
	nodes []*historyNode
	late  []lateProposal
}

type historyNode struct {
	store   *Store
	fs      *faultfs.FS
	replies []reply // the last answers, however old
}

type lateProposal struct {
	to  int
	req []byte
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{t: t, rng: rand.New(rand.NewPCG(seed, 7))}
	for i := range 3 {
		h.list = append(h.list, Node{fmt.Sprintf("n%d", i+1), fmt.Sprintf("h%d:1", i+1)})
		h.nodes = append(h.nodes, &historyNode{fs: faultfs.New("/d")})
	}
	for i := range h.nodes {
		h.open(i)
	}
	return h
}

func (h *history) open(i int) {
	s, err := Open(h.nodes[i].fs, "/d", h.list[i], h.list)
	if err != nil {
		h.t.Fatal(err)
	}
	h.nodes[i].store = s
}

func (h *history) step() {
	i := h.rng.IntN(3)
	n := h.nodes[i]
	switch r := h.rng.IntN(100); {
	case r < 30: // asks one other
		if n.replies == nil {
			n.replies = make([]reply, 3)
			for j := range n.replies {
				n.replies[j].err = errors.New("not asked yet")
			}
		}
		j := h.rng.IntN(3)
		n.replies[j].Answer, n.replies[j].err = Probe(context.Background(), func(_ context.Context, _ string, req []byte) ([]byte, error) {
			resp, _, err := h.nodes[j].store.Control(req, nil)
			return resp, err
		}, "")
	case r < 60: // decides by its replies
		own := n.store.Identity()
		if n.replies == nil || own.State > Proposed {
			return
		}
		s := decide(h.list[i], h.list, own, n.replies)
		switch s.do {
		case adopt:
			h.must(n.store.replace(own, s.next))
		case found:
			next := own
			next.State = Joined
			h.must(n.store.replace(own, next))
		case wait:
			for _, m := range s.propose {
				next := own
				next.Self, next.Incarnation = m.ID, m.Incarnation
				to := slices.Index(h.list, m.Node())
				b, _, _ := h.request(next)
				h.late = append(h.late, lateProposal{to, b})
			}
		}
	case r < 90: // a proposal arrives, and perhaps once more later
		if len(h.late) == 0 {
			return
		}
		k := h.rng.IntN(len(h.late))
		p := h.late[k]
		_, _, _ = h.nodes[p.to].store.Control(p.req, nil)
		if h.rng.IntN(2) == 0 {
			h.late = slices.Delete(h.late, k, k+1)
		}
	case r < 98: // a power cut
		n.fs = n.fs.PowerCut(h.rng)
		n.replies = nil
		h.open(i)
	default: // the directory is emptied
		n.fs = faultfs.New("/d")
		n.replies = nil
		h.open(i)
	}
	h.check()
}

func (h *history) request(id Identity) ([]byte, bool, error) {
	var b []byte
	_, err := ask(context.Background(), func(_ context.Context, _ string, req []byte) ([]byte, error) {
		b = req
		return nil, errors.New("later")
	}, "", request{opPropose, id})
	return b, true, err
}

func (h *history) must(_ bool, err error) {
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) check() {
	for _, n := range h.nodes {
		id := n.store.Identity()
		if id.State != Joined {
			continue
		}
		for j, o := range h.nodes {
			other := o.store.Identity()
			if other.Incarnation == id.Cluster.Members[j].Incarnation && other.Cluster.ID != id.Cluster.ID {
				h.t.Fatalf("%s is %+v, and %s is %+v", h.list[j], other, id.Member(), id)
			}
		}
	}
}
