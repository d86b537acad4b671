//go:build proof

package cluster

import (
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/beanstalkd/go-beanstalk"

	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

// putters are clients that put jobs, each on a connection that it makes anew when it fails.
type putters struct {
	town   *clustertest.Cluster
	done   chan struct{}
	all    sync.WaitGroup
	stored []atomic.Int64 // acknowledged puts of each
	failed atomic.Int64   // puts without an answer, on connections that had served some
	moves  atomic.Int64   // how often clients were told to go to the leader
}

func newPutters(w *clustertest.Cluster, clients int) *putters {
	l := &putters{town: w, done: make(chan struct{}), stored: make([]atomic.Int64, clients)}
	for i := range clients {
		l.all.Go(func() { l.run(&l.stored[i]) })
	}
	return l
}

func (l *putters) run(stored *atomic.Int64) {
	var c *beanstalk.Conn
	served, moved := false, int64(0)
	for {
		select {
		case <-l.done:
			if c != nil {
				_ = c.Close()
			}
			return
		default:
		}
		if n := l.moves.Load(); n > moved && c != nil {
			_ = c.Close()
			c, moved = nil, n
		}
		if c == nil {
			c, served = l.dial(), false
			continue
		}
		if _, err := c.Put([]byte("x"), 0, 0, time.Minute); err != nil {
			if served { // otherwise it was made while the member gave up its port
				l.failed.Add(1)
			}
			_ = c.Close()
			c = nil
			continue
		}
		served = true
		stored.Add(1)
	}
}

// dial connects to the leader; nil if none serves.
func (l *putters) dial() *beanstalk.Conn {
	for _, n := range l.town.Nodes {
		s, err := n.Ask(`{"op":"status"}`)
		if err != nil || !s.Serves || s.Clients == "" {
			continue
		}
		if c, err := beanstalk.DialTimeout("tcp", s.Clients, servertest.Patience); err == nil {
			return c
		}
	}
	time.Sleep(10 * time.Millisecond)
	return nil
}

// goesOn waits until so many more puts of each client are acknowledged, and returns the number of all
// that ever were.
func (l *putters) goesOn(puts int64) (stored int64) {
	l.town.T.Helper()
	for i := range l.stored {
		from := l.stored[i].Load()
		l.town.Eventually("clients are served", func() bool { return l.stored[i].Load() >= from+puts })
		stored += l.stored[i].Load()
	}
	return stored
}

// Members are replaced by those of a program whose protocol between members is a later one, in
// the order that the manual says. Clients notice nothing, if they have left a member when it is stopped.
func TestMembersAreUpgradedOneByOneOverAChangeOfTheirProtocol(t *testing.T) {
	if servertest.RaceEnabled {
		t.Skip("builds a program, and the race detector has nothing new to see in it")
	}
	t.Parallel()
	next := clustertest.PlantedProgram(t)
	clustertest.Undisturbed(t, 3, func(t testing.TB, w *clustertest.Cluster) {
		w.StartAll()
		const clients = 4
		old, l := w.Leader(), newPutters(w, clients)
		l.goesOn(25)
		caughtUp := func(n *clustertest.Member) {
			w.Eventually(n.Name+" has caught up", func() bool {
				for _, o := range w.Nodes {
					if s, err := o.Ask(`{"op":"status"}`); err == nil && s.Serves {
						for _, m := range s.Members {
							if m.Name == n.Name {
								return m.Alive && m.Match > 0 && m.Match+100 >= s.Commit
							}
						}
					}
				}
				return false
			})
		}
		replace := func(n *clustertest.Member, versions string) {
			n.Door.Lead("")
			n.Process.Signal(syscall.SIGTERM)
			n.Process.Wait()
			n.Program, n.Env = next, []string{"TRELLIS_PLANTED=" + versions}
			n.Start()
			caughtUp(n)
			l.goesOn(25)
		}
		var standbys []*clustertest.Member
		for _, n := range w.Nodes {
			if n != old {
				standbys = append(standbys, n)
			}
		}
		for _, n := range standbys {
			replace(n, "next-wire")
		}
		if n := l.failed.Load(); n > 0 {
			t.Errorf("%d errors while the standbys were replaced", n)
		}
		w.AskLeader(`{"op":"transfer","to":"` + standbys[0].Name + `"}`)
		l.goesOn(25)
		l.moves.Add(1)
		l.goesOn(25)
		replace(old, "next-wire")
		// The later protocol is the one that is spoken now: who knows no other belongs to them.
		// It does not talk to this test, which speaks the earlier one.
		replace(old, "next-wire-only")
		replace(old, "next-wire")
		if n := l.failed.Load(); n > 0 {
			t.Errorf("%d errors at the transfer, or behind it", n)
		}
		close(l.done)
		l.all.Wait()
		stored := l.goesOn(0)
		if jobs := w.Settled(); int64(jobs) < stored {
			t.Errorf("%d jobs, %d were acknowledged", jobs, stored)
		}
		t.Log(stored, "puts")
	})
}
