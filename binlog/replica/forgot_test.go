package replica

import (
	"errors"
	"testing"
)

// A member that was started from a copy of its directory, while the leader remembers what it has
// acknowledged since, ends. It does not vote.
func TestAMemberThatHasForgottenWhatItAcknowledgedEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1).startAll()
	put := func() {
		for range 20 {
			c.must(func(q *model) error { _, err := q.put(make([]byte, 100)); return err })
		}
		c.settled()
	}
	put()
	l := c.leader()
	p := c.others(l)[0]
	p.kill()
	copied := p.fs.PowerCut(c.rng) // another disk, with all that was synced
	p.fs = p.fs.Killed()
	if err := c.start(p); err != nil {
		t.Fatal(err)
	}
	put()
	p.kill()
	term := l.running().Status().Term
	p.fs = copied
	if err := c.start(p); err != nil {
		t.Fatal(err)
	}
	c.eventually("it ends", func() bool { _, ended := p.end(); return ended })
	err, _ := p.end()
	if now := c.leader().running().Status().Term; now != term {
		t.Skipf("the leader that remembers was deposed: %v", err)
	}
	if !errors.Is(err, ErrForgot) {
		t.Errorf("it ended with %v", err)
	}
	c.must(func(q *model) error { _, err := q.put(make([]byte, 100)); return err })
}
