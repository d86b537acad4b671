package replica

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"trellis/binlog/journal"
)

// registry is the processes of members, which have numbers for their loops, and what they were told.
type registry struct {
	*cluster
	nonces map[uint64]uint64   // by member: of its process
	has    map[uint64][]uint32 // by nonce: what the process has
	owners map[uint32]uint64   // by number: the nonce of whom it was ever given to
}

// ask has the process of a member ask a queue for the numbers of n loops.
func (r *registry) ask(q *servedQueue, member uint64, n int) error {
	r.t.Helper()
	nonce := r.nonces[member]
	var given []uint32
	err := q.execute(func(*Leadership) (pos journal.Pos, err error) {
		given, pos, err = q.engine.GiveNumbers(member, nonce, n)
		return pos, err
	})
	if err != nil {
		return err
	}
	had := r.has[nonce]
	if same := min(n, len(had)); len(given) != n || !slices.Equal(given[:same], had[:same]) {
		r.t.Errorf("member %d with nonce %d has the numbers %v, and had %v", member, nonce, given, had)
	}
	for _, x := range given {
		if owner, known := r.owners[x]; known && owner != nonce {
			r.t.Errorf("number %d is given to nonce %d, and was given to %d", x, nonce, owner)
		}
		r.owners[x] = nonce
	}
	if n > len(had) {
		r.has[nonce] = given
	}
	return nil
}

// askAny asks whoever leads until he answers.
func (r *registry) askAny(member uint64, n int, among ...*peer) {
	r.t.Helper()
	if among == nil {
		among = r.nodes
	}
	r.eventually("numbers are given", func() bool {
		for _, p := range among {
			if q := p.served(); q != nil && r.ask(q, member, n) == nil {
				return true
			}
		}
		return false
	})
}

// check waits until all members have read the same, and compares it with what was told.
func (r *registry) check(when string) {
	r.t.Helper()
	r.settled()
	var first string
	for i, p := range r.nodes {
		var list []string
		n := p.running()
		if n == nil {
			r.t.Fatalf("%s: %s is down", when, p.name)
		}
		err := n.opts.Queue.Numbers(func(n *journal.Numbers) error {
			list = append(list, fmt.Sprint(*n))
			return nil
		})
		got := strings.Join(list, " ")
		if i == 0 {
			first = got
		}
		if err != nil || got != first {
			r.t.Errorf("%s: %s has the numbers %s, and another one %s; %v", when, p.name, got, first, err)
		}
		e := n.opts.Queue.(*servedQueue).present()
		for member, nonce := range r.nonces {
			for _, x := range r.has[nonce] {
				if m, o := e.NumberOf(x); m != member || o != nonce {
					r.t.Errorf("%s: at %s, number %d is that of member %d with nonce %d, want %d with %d", when, p.name, x, m, o, member, nonce)
				}
			}
		}
		for x, nonce := range r.owners {
			if _, o := e.NumberOf(x); o != 0 && o != nonce {
				r.t.Errorf("%s: at %s, number %d is that of nonce %d, and was given to %d", when, p.name, x, o, nonce)
			}
		}
	}
}

// No number is given to two processes, whoever leads and whatever members have forgotten, and who
// asks again gets what he was given.
func TestNumbersOfLoopsOutliveLeadersSnapshotsAndRestarts(t *testing.T) {
	t.Parallel()
	c, o := newServedCluster(t, 3)
	for _, p := range c.nodes {
		p.bytes = 5000
	}
	c.startAll().versionTwo()
	r := &registry{c, map[uint64]uint64{}, map[uint64][]uint32{}, map[uint32]uint64{}}
	writer := &recorded{office: o}
	rounds := 2
	if proof {
		rounds = 20
	}
	for round := range rounds {
		for member := range uint64(3) {
			if r.nonces[member+1] == 0 || c.rng.IntN(3) == 0 { // the member's process is a new one
				r.nonces[member+1] = 1000*uint64(round) + member + 1
			}
		}
		r.askAny(1, 2)
		r.askAny(2, 1+c.rng.IntN(4))
		r.check("all asked")

		l := c.leader()
		c.net.isolate(l, true)
		if q := l.served(); q != nil {
			if err := r.ask(q, 3, 3); err == nil {
				t.Error("who is cut off has given numbers")
			} else if !errors.Is(err, errReset) && !errors.Is(err, errRefused) {
				t.Error(err)
			}
		}
		r.askAny(3, 2, c.others(l)...)
		r.askAny(1, 2, c.others(l)...)
		c.net.isolate(l, false)
		r.askAny(3, 4)
		r.check("a leader was cut off")

		l = c.leader()
		r.askAny(2, 3)
		c.restart(l, func() { r.askAny(2, 3, c.others(l)...) })
		r.check("a leader has died")

		away := c.others(c.leader())[0]
		away.kill()
		r.askAny(1, 3)
		// A snapshot is due when the log is three of them long, so nothing is left that makes the next one longer.
		o.returns(c, away, func() {
			o.must(c, writer, "put 0 0 9 900\r\n"+strings.Repeat("x", 900)+"\r\nflush-tube default\r\n", "FLUSHED")
		})
		r.check("a snapshot was installed")
		c.handOver(away.id)
		r.askAny(3, 5)

		for _, p := range c.nodes {
			p.kill()
		}
		c.startAll()
		r.askAny(2, 3)
		r.check("all have restarted")
	}
}

// What is on record of numbers that are gone stays so.
func TestNumbersThatAreGoneDoNotComeBack(t *testing.T) {
	t.Parallel()
	c, o := newServedCluster(t, 3)
	for _, p := range c.nodes {
		p.bytes = 5000
	}
	c.startAll().versionTwo()
	for _, x := range []journal.Numbers{
		{First: 1, Count: 4, Member: 7, Nonce: 1}, {First: 5, Count: 2, Member: 8, Nonce: 2}, {First: 2, Count: 1}, {First: 5, Count: 2},
	} {
		c.must(func(q *model) error {
			return q.execute(func(l *Leadership) (journal.Pos, error) { return l.Numbers(&x) })
		})
	}
	c.restart(c.leader()) // the others have read them
	const want = "{1 1 7 1} {3 2 7 1} "
	numbers := func(what string) {
		t.Helper()
		c.settled()
		for _, p := range c.nodes {
			var got string
			err := p.running().opts.Queue.Numbers(func(n *journal.Numbers) error {
				got += fmt.Sprint(*n, " ")
				return nil
			})
			if err != nil || !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s has the numbers %s, want first of all %s; %v", what, p.name, got, want, err)
			}
		}
	}
	numbers("another leads")
	k := &recorded{office: o}
	away := c.others(c.leader())[0]
	away.kill()
	o.returns(c, away, func() { o.must(c, k, "put 0 0 9 900\r\n"+strings.Repeat("x", 900)+"\r\n", "INSERTED") })
	numbers("a snapshot was installed")
	for _, p := range c.nodes {
		p.kill()
	}
	c.startAll()
	numbers("all have restarted")
}
