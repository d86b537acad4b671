//go:build proof

package cluster

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"trellis/binlog/replica"
	"trellis/binlog/replica/wire"
)

// Before all members know how, those that do not lead have no port for clients; from then on they have.
func TestMembersForwardOnceAllKnowHow(t *testing.T) {
	t.Parallel()
	r := newRigOf(t, false, 0, replica.VersionOfTrunks-1, 0)
	old := 1
	none := func() {
		t.Helper()
		for i, q := range r.queues {
			if f := q.Forwarding(); f != nil {
				t.Fatalf("member %d forwards clients, and member %d does not know how", i, old)
			}
		}
	}
	r.leader(-1)
	for n := range 20 {
		r.eventually("a job is stored", func() bool {
			l, _ := r.leader(-1)
			_, line, err := r.try(l, false, "put 0 0 9 1\r\nx\r\n")
			return err == nil && strings.HasPrefix(line, "INSERTED")
		})
		none()
		if n == 10 {
			_, _ = r.members[0].control(t.Context(), wire.Caller{}, []byte(`{"op":"transfer"}`), nil)
		}
	}
	if err := r.stop(old); err != nil {
		t.Fatal(err)
	}
	r.newest[old] = 0
	r.start(old, nil, listenLocally(t))
	r.all()
	for i := range r.queues {
		r.must(i, "use x\r\n", "USING x\r\n")
	}
}

// A member that cannot reach the leader, or is not reached by it, ends its clients; what they held is
// free, and others do not notice.
func TestAMemberThatIsCutOffEndsItsClients(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(n *network, leader, gateway string){
		"both ways":       func(n *network, leader, gateway string) { n.cut(leader, gateway) },
		"to the leader":   func(n *network, leader, gateway string) { n.silence(gateway, leader) },
		"from the leader": func(n *network, leader, gateway string) { n.silence(leader, gateway) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newCutRig(t, 3)
			var l, g int
			var c *asideClient
			r.eventually("a client of a member that forwards holds a job", func() bool {
				l, _ = r.leader(-1)
				reign := r.queues[l].Leaderships()
				g = r.others(l)[0]
				c = r.hold(g, "held")
				return r.queues[l].Serving() != nil && r.queues[l].Leaderships() == reign // otherwise another has served it
			})
			cut(r.net, r.nodes[l].Addr, r.nodes[g].Addr)
			c.ended(t)
			r.free(r.others(g)[0], "held")
			r.net.heal()
			r.must(g, "use x\r\n", "USING x\r\n")
		})
	}
}

// Who has ended and comes back is another gateway, and what the one before held is free.
func TestAMemberThatForwardsIsStartedAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	r.all()
	l, _ := r.leader(-1)
	g := r.others(l)[0]
	c := r.hold(g, "held")
	if err := r.stop(g); err != nil {
		t.Fatal(err)
	}
	c.ended(t)
	r.free(r.others(g)[0], "held")
	gone := uint64(0)
	for _, q := range r.queues {
		gone += q.Gone()
	}
	if gone == 0 {
		t.Error("no loop is counted as gone")
	}
	r.start(g, nil, listenLocally(t))
	r.hold(g, "again")
}

func TestAMemberThatIsRemovedEndsItsClients(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	r.all()
	g := -1
	var c *asideClient
	r.eventually("a member that forwards is removed", func() bool {
		l, _ := r.leader(-1)
		if g < 0 {
			g = r.others(l)[0]
			c = r.hold(g, "held")
		}
		if l == g { // it was elected meanwhile
			r.members[l].resign("a test")
			return false
		}
		_, err := r.members[l].control(t.Context(), wire.Caller{}, []byte(`{"op":"remove","node":"`+r.nodes[g].Name+`"}`), nil)
		st := r.members[l].Status()
		return err == nil || st.Leads && len(st.Members) == 2
	})
	c.ended(t)
	if err := r.ended(g); !errors.Is(err, replica.ErrRemoved) {
		t.Error(err)
	}
	r.free(r.others(g)[0], "held")
}

// Who is told to stop answers what has come.
func TestAMemberThatForwardsStopsInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	const many = 100
	r.eventually("all puts are answered", func() bool { // again if the trunk is lost meanwhile
		l, _ := r.leader(-1)
		g := r.others(l)[0]
		c, _ := r.must(g, "use x\r\n", "USING x\r\n")
		if _, err := io.WriteString(c, strings.Repeat("put 0 0 9 1\r\nx\r\n", many)); err != nil {
			return false
		}
		r.queues[g].Stop()
		err := r.queues[g].Shutdown(t.Context())
		answered := strings.Count(c.ended(t), "INSERTED ")
		if r.queues[g].Forwarding().Addrs != nil {
			if again, err := net.Dial("tcp", c.RemoteAddr().String()); err == nil {
				_ = again.Close()
			}
		}
		if err := r.stop(g); err != nil {
			t.Error(err)
		}
		r.start(g, nil, listenLocally(t))
		return err == nil && answered == many
	})
}
