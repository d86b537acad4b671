package member

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"trellis/binlog/vfs/faultfs"
)

// founded is a town of three with a cluster, and a fourth node that is not in it.
func founded(t *testing.T) (*town, Cluster, Node) {
	w := newTown(t, 3)
	ids := w.settleAll(rand.New(rand.NewPCG(1, 1)), make([]time.Duration, 3))
	return w, ids["n1"].Cluster, w.node(4)
}

func TestANodeIsAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, n4 := founded(t)
		stop, result := w.background(n4)
		defer stop()
		time.Sleep(10 * time.Second)
		w.waits(n4, "it waits to be added (trellis cluster add n4=h4:1)")
		m, err := Invite(t.Context(), w.call, c, n4)
		if err != nil {
			t.Fatal(err)
		}
		id, err := result()
		if err != nil || id.State != Invited || id.Member() != m || len(id.Cluster.Members) != 4 || id.Cluster.ID != c.ID {
			t.Fatalf("%+v, %v, want %+v", id, err, m)
		}
		if _, taken := c.Member(m.ID); taken || m.Node() != n4 {
			t.Fatalf("%+v", m)
		}

		// The leader ended before it proposed the learner. The node runs under its id by now.
		turned := slices.Clone(c.Members)
		slices.Reverse(turned)
		for _, now := range []Cluster{c, {ID: c.ID, Members: turned}} {
			again, err := Invite(t.Context(), w.call, now, n4)
			if mark := w.state(n4); err != nil || again != m || mark.State != Invited || mark.Member() != m || mark.Cluster.Members[0] != now.Members[0] {
				t.Fatalf("%+v after %+v, %v; its mark is %+v", again, m, err, mark)
			}
		}

		s := w.stores["n4"]
		for range 2 {
			if err := s.Join(); err != nil || w.state(n4).State != Joined {
				t.Fatalf("%+v, %v", w.state(n4), err)
			}
		}
		if _, err := Invite(t.Context(), w.call, c, n4); err == nil || !strings.Contains(err.Error(), "is joined by cluster") {
			t.Fatalf("a node that has heard from its group got another id: %v", err)
		}
		for range 2 {
			if err := s.Remove(); err != nil || w.state(n4).State != Removed {
				t.Fatalf("%+v, %v", w.state(n4), err)
			}
		}
		if err := s.Join(); err == nil {
			t.Fatal("a removed node joined")
		}
		w.end(n4)
		if _, err := Open(w.disks["n4"], "/d", n4, w.nodes); !errors.Is(err, ErrRemoved) {
			t.Fatalf("%v, want ErrRemoved", err)
		}
	})
}

func TestAnInvitationSurvivesACrashAtAnyPoint(t *testing.T) {
	for at, done := 1, false; !done; at++ {
		for seed := range uint64(2) {
			synctest.Test(t, func(t *testing.T) {
				w, c, n4 := founded(t)
				stop, result := w.background(n4)
				synctest.Wait()
				fsys := w.disks["n4"]
				at := fsys.Calls() + at
				fsys.Hook(func(c faultfs.Call) faultfs.Fault { return faultfs.Fault{Off: c.N == at} })
				m, err := Invite(t.Context(), w.call, c, n4)
				if err == nil {
					_, err = result()
				} else {
					stop()
					_, _ = result()
				}
				done = err == nil
				w.disks["n4"] = fsys.PowerCut(rand.New(rand.NewPCG(seed, uint64(at))))
				id := w.state(n4)
				if m.ID != 0 && id.Self != m.ID {
					t.Fatalf("call %d: it took the id %s and has %+v", at, m.ID, id)
				}
				stop, result = w.background(n4)
				defer stop()
				synctest.Wait()
				m, err = Invite(t.Context(), w.call, c, n4)
				if err != nil {
					t.Fatalf("call %d: %v", at, err)
				}
				if id, err := result(); err != nil || id.State != Invited || id.Cluster.ID != c.ID {
					t.Fatalf("call %d: %+v, %v", at, id, err)
				}
				if id := w.state(n4); id.Self != m.ID || id.State != Invited {
					t.Fatalf("call %d: %+v, want %s", at, id, m.ID)
				}
			})
		}
	}
}

func TestInvitationsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, n4 := founded(t)
		stop, _ := w.background(n4)
		defer stop()
		synctest.Wait()
		other := Cluster{ID: ClusterID{9}, Members: []Member{{1, 1, "m1", "g1:1"}}}
		mixed := Cluster{ID: ClusterID{9}, Members: []Member{{1, 1, "n1", "h1:1"}, {2, 2, "n2", "g2:1"}}}
		for _, x := range []struct {
			name string
			now  Cluster
			node Node
			want string
		}{
			{"name", c, Node{"n3", "h4:1"}, "the name n3 is taken: n3 (h3:1) is a member"},
			{"address", c, Node{"n4", "h3:1"}, "the address h3:1 is taken: n3 (h3:1) is a member"},
			{"no name", c, Node{"-", "h4:1"}, "not a node's name"},
			{"another node", c, Node{"n5", "h4:1"}, "at h4:1 is the node n4=h4:1, not n5=h4:1"},
			{"nobody", c, Node{"n5", "h5:1"}, "connection refused"},
			{"a cluster that is not listed", other, n4, "and --cluster of n4 says n1="},
			{"a cluster with other addresses", mixed, n4, "the cluster has n2=g2:1, and --cluster of n4 says n2=h2:1"},
			{"a member of another cluster", other, w.nodes[0], "n1=h1:1 is joined by cluster " + c.ID.String()},
		} {
			m, err := Invite(t.Context(), w.call, x.now, x.node)
			if err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %+v, %v; want %q", x.name, m, err, x.want)
			}
			if strings.Contains(x.want, "taken") != errors.Is(err, ErrTaken) {
				t.Errorf("%s: %v", x.name, err)
			}
			if id := w.state(n4); id.State != Empty {
				t.Errorf("%s: n4 is %+v", x.name, id)
			}
		}
	})
}

func TestRequestsThatNoNodeSendsAreRefused(t *testing.T) {
	w := newTown(t, 2)
	s, err := Open(w.disks["n1"], "/d", w.nodes[0], w.nodes)
	if err != nil {
		t.Fatal(err)
	}
	before := w.state(w.nodes[0])
	for _, req := range []string{"", "{}", "[]", `{"op":"status"}`, `{"op":7}`} {
		if _, ok, err := s.Control([]byte(req), nil); ok || err != nil {
			t.Errorf("%s: %v %v, want it left to others", req, ok, err)
		}
	}
	whole := joined()
	whole.State = Proposed
	for _, change := range []func(*Identity){
		func(*Identity) {},
		func(id *Identity) { id.Incarnation = before.Incarnation },
		func(id *Identity) { id.Self, id.Cluster.Members[0].Incarnation, id.Incarnation = 1, 99, 99 },
		func(id *Identity) { id.State = Joined },
		func(id *Identity) { id.State = Empty },
		func(id *Identity) { *id = Identity{} },
	} {
		id := whole
		id.Cluster.Members = append([]Member(nil), whole.Cluster.Members...)
		change(&id)
		for _, op := range []string{opPropose, opInvite} {
			_, err := ask(context.Background(), func(_ context.Context, _ string, req []byte) ([]byte, error) {
				resp, ok, err := s.Control(req, nil)
				if !ok {
					t.Error("it was left to others")
				}
				return resp, err
			}, "", request{op, id})
			if err == nil {
				t.Errorf("%s of %+v was taken", op, id)
			}
		}
	}
	if after := w.state(w.nodes[0]); !after.equal(before) {
		t.Errorf("%+v became %+v", before, after)
	}
}

// Whoever is no member learns who a node is, and changes nothing.
func TestAStrangerProposesAndInvitesNobody(t *testing.T) {
	w := newTown(t, 1)
	s, err := Open(w.disks["n1"], "/d", w.nodes[0], w.nodes)
	if err != nil {
		t.Fatal(err)
	}
	before, stranger := s.Identity(), errors.New("a stranger")
	id := joined()
	for op, want := range map[string]error{opProbe: nil, opPropose: stranger, opInvite: stranger} {
		req, err := json.Marshal(request{op, id})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, err := s.Control(req, stranger); !ok || !errors.Is(err, want) {
			t.Errorf("%s: %t, %v", op, ok, err)
		}
	}
	if !s.Identity().equal(before) {
		t.Errorf("%+v became %+v", before, s.Identity())
	}
}

func FuzzControl(f *testing.F) {
	f.Add([]byte(`{"op":"probe"}`))
	f.Add([]byte(`{"op":"propose","identity":{"incarnation":"0000000000000abc","state":"proposed","self":"0000000000000001","round":1,"cluster":{"id":"01000000000000000000000000000000","members":[]}}}`))
	f.Fuzz(func(t *testing.T, req []byte) {
		nodes := []Node{{"n1", "h1:1"}, {"n2", "h2:1"}}
		s, err := Open(faultfs.New("/d"), "/d", nodes[0], nodes)
		if err != nil {
			t.Fatal(err)
		}
		before := s.Identity()
		resp, ok, err := s.Control(req, nil)
		if ok && err == nil {
			if a, err := parseAnswer(resp); err != nil || a.Node != nodes[0] {
				t.Fatalf("%s, %v", resp, err)
			}
		}
		// Nobody outside knows the incarnation.
		if !s.Identity().equal(before) {
			t.Fatalf("%q made %+v", req, s.Identity())
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"node":{"name":"n1","addr":"h:1"},"nodes":[],"identity":{"incarnation":"0000000000000abc"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAnswer(b)
		if err != nil {
			return
		}
		nodes := []Node{{"n0", "h0:1"}, a.Node}
		_ = decide(nodes[0], nodes, Identity{Incarnation: 1}, []reply{{}, {Answer: a}})
	})
}
