//go:build proof

package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/binlog/replica"
	"trellis/binlog/replica/entry"
	"trellis/binlog/replica/wire"
)

// Before all members know how, those that do not lead have no port for clients; from then on they have.
func TestMembersForwardOnceAllKnowHow(t *testing.T) {
	r := newRigOf(t, false, 0, entry.Newest-1, 0)
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

// Clients of all members put, reserve and delete while leaders change. No reply is wrong, no job is lost
// that was acknowledged, and none comes again that was deleted.
func TestNothingIsLostByClientsOfAnyMemberWhenLeadersChange(t *testing.T) {
	r := newCutRig(t, 5)
	var (
		ending  = make(chan struct{})
		clients sync.WaitGroup
		mu      sync.Mutex
		put     = map[uint64]string{}
		deleted = map[uint64]bool{}
		unknown = map[uint64]bool{} // deletes without a reply
		replies [5]atomic.Int64     // of each member
	)
	serve := func(i int, c *asideClient) error {
		for n := 0; ; n++ {
			select {
			case <-ending:
				return nil
			default:
			}
			name := fmt.Sprint("client-", i, "-", n)
			body := name + strings.Repeat(" and so on", n%2000)
			line, err := c.say(fmt.Sprintf("watch %s\r\nput 0 0 999 %d\r\n%s\r\nignore %s\r\nreserve-with-timeout 0\r\n", name, len(body), body, name))
			if err != nil {
				return err
			}
			if line != "WATCHING 2\r\n" {
				t.Errorf("watch %s: %q", name, line)
			}
			if line, err = c.r.ReadString('\n'); err != nil {
				return err
			}
			var id uint64
			if _, err := fmt.Sscanf(line, "INSERTED %d", &id); err != nil {
				t.Errorf("a put: %q", line)
			}
			mu.Lock()
			if put[id] != "" {
				t.Errorf("job %d was put twice", id)
			}
			put[id] = body
			mu.Unlock()
			if line, err = c.r.ReadString('\n'); err != nil {
				return err
			}
			if line != "WATCHING 1\r\n" {
				t.Errorf("ignore %s: %q", name, line)
			}
			if line, err = c.r.ReadString('\n'); err != nil {
				return err
			}
			replies[i].Add(4)
			if line == "TIMED_OUT\r\n" {
				continue
			}
			id, body, err = c.body(line, "RESERVED %d %d")
			if err != nil {
				return err
			}
			mu.Lock()
			if want := put[id]; deleted[id] || want != "" && want != body {
				t.Errorf("job %d is reserved with %.50q, was put as %.50q, deleted: %v", id, body, want, deleted[id])
			}
			unknown[id] = true
			mu.Unlock()
			if line, err = c.say(fmt.Sprintf("delete %d\r\n", id)); err != nil {
				return err
			}
			if line != "DELETED\r\n" {
				t.Errorf("the delete of job %d, which the client has: %q", id, line)
			}
			mu.Lock()
			deleted[id] = true
			mu.Unlock()
			replies[i].Add(1)
		}
	}
	for i := range r.queues {
		for n := range 3 {
			clients.Go(func() {
				for {
					select {
					case <-ending:
						return
					case <-time.After(time.Millisecond):
					}
					c, line, err := r.try(i, n == 0, "watch default\r\n")
					if err == nil && line != "WATCHING 1\r\n" {
						t.Errorf("watch: %q", line)
					}
					if err == nil {
						_ = serve(i, c)
					}
					if c != nil {
						_ = c.Close()
					}
				}
			})
		}
	}
	for n := range 60 { // changes
		r.eventually("clients of all members are served", func() bool {
			for i := range replies {
				if replies[i].Load() < 20 {
					return false
				}
			}
			return true
		})
		for i := range replies {
			replies[i].Store(0)
		}
		l, _ := r.leader(-1)
		switch n % 3 {
		case 0:
			r.members[l].resign("a test")
		case 1:
			r.transfer(l)
		case 2:
			before := r.queues[l].Leaderships()
			for _, o := range r.others(l) {
				r.net.cut(r.nodes[l].Addr, r.nodes[o].Addr)
			}
			r.eventually("it does not lead any more", func() bool { return r.queues[l].Serving() == nil || r.queues[l].Leaderships() != before })
			r.net.heal()
		}
	}
	close(ending)
	clients.Wait()
	// What was put is there, once, unless it was deleted.
	r.eventually("all jobs are taken", func() bool {
		l, _ := r.leader(-1)
		c, _, err := r.try(l, false, "use x\r\n")
		for err == nil {
			var line, body string
			var id uint64
			if line, err = c.say("reserve-with-timeout 0\r\n"); err != nil {
				break
			}
			if line == "TIMED_OUT\r\n" { // what a client held that is gone may yet come back
				defer c.Close()
				if line, err = c.say("stats-tube default\r\n"); err != nil {
					return false
				}
				var n int
				if _, err := fmt.Sscanf(line, "OK %d", &n); err != nil {
					return false
				}
				b := make([]byte, n+2)
				_, err = io.ReadFull(c.r, b)
				return err == nil && strings.Contains(string(b), "current-jobs-reserved: 0\n")
			}
			if id, body, err = c.body(line, "RESERVED %d %d"); err != nil {
				break
			}
			if deleted[id] || put[id] != "" && put[id] != body {
				t.Errorf("job %d is there with %.50q; it was put as %.50q, deleted: %v", id, body, put[id], deleted[id])
			}
			unknown[id] = true
			if line, err = c.say(fmt.Sprintf("delete %d\r\n", id)); line == "DELETED\r\n" {
				deleted[id] = true
			}
		}
		return false
	})
	for id, body := range put {
		if !deleted[id] && !unknown[id] {
			t.Errorf("job %d, %.50q, is lost", id, body)
		}
	}
}
