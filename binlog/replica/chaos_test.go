package replica

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"trellis/binlog/journal"
)

var (
	seeds = flag.Int("seeds", 0, "how many histories TestJobsSurviveWhatAClusterMeets has; by default one, and two in make proof")
	seed  = flag.Uint64("seed", 1, "the first one's seed")
)

// client puts jobs, changes and deletes them, and keeps books: what is certain, and what
// nobody knows because a connection was reset. Its jobs are its own, so that a read of
// one has to show the last change that was acknowledged before, or one that was tried
// since.
type client struct {
	t    *testing.T
	c    *cluster
	rng  *rand.Rand
	name string
	puts int
	jobs map[uint64]*entryInBooks
	lost map[string]bool // bodies of puts of which nobody knows

	acked, tried uint32 // changes of the setting of the client's tube
}

type entryInBooks struct {
	body      string
	acked     uint32 // the last change that was acknowledged
	tried     uint32 // the last change
	deleted   bool   // acknowledged
	maybeGone bool   // a delete was tried
}

// queue is one that serves, if any does.
func (k *client) queue() *model {
	for _, i := range k.rng.Perm(len(k.c.nodes)) {
		p := k.c.nodes[i]
		p.mu.Lock()
		q, up := p.queue, p.node != nil
		p.mu.Unlock()
		if up && q.serves() {
			return q
		}
	}
	return nil
}

func (k *client) run(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		q := k.queue()
		if q == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		k.step(q)
	}
}

func (k *client) step(q *model) {
	id := k.pick()
	if id == 0 || k.rng.IntN(3) == 0 {
		k.put(q)
		return
	}
	if k.rng.IntN(8) == 0 {
		k.set(q)
		return
	}
	j := k.jobs[id]
	switch k.rng.IntN(5) {
	case 0:
		j.maybeGone = true
		switch err := q.delete(id); {
		case err == nil:
			j.deleted = true
		case errors.Is(err, errReset):
		default:
			j.maybeGone = false
		}
	case 1, 2:
		j.tried++
		switch err := q.bury(id, j.tried); {
		case err == nil:
			j.acked = j.tried
			k.peekElsewhere(q, id, j)
		case errors.Is(err, errReset):
		default:
			j.tried--
		}
	default:
		k.peek(q, id, j)
	}
}

// set changes the setting of a tube that is the client's own.
func (k *client) set(q *model) {
	k.tried++
	s := journal.DeadLetters(k.name, k.tried, "dead")
	switch err := q.set(s); {
	case err == nil:
		k.acked = k.tried
	case errors.Is(err, errReset):
	default:
		k.tried--
	}
}

func (k *client) put(q *model) {
	k.puts++
	body := fmt.Sprintf("%s-%d", k.name, k.puts)
	id, err := q.put([]byte(body))
	switch {
	case err == nil:
		if k.jobs[id] != nil {
			k.t.Errorf("job %d was put twice", id)
		}
		k.jobs[id] = &entryInBooks{body: body}
	case errors.Is(err, errReset):
		k.lost[body] = true
	}
}

func (k *client) peek(q *model, id uint64, j *entryInBooks) {
	r, found, err := q.peek(id)
	if err != nil {
		return
	}
	if !found {
		k.t.Errorf("job %d was not found though nobody has deleted it", id)
		return
	}
	if string(r.Body) != j.body || r.Buries < j.acked || r.Buries > j.tried {
		k.t.Errorf("job %d is %q with change %d; it was put as %q, and change %d was acknowledged", id, r.Body, r.Buries, j.body, j.acked)
	}
}

// peekElsewhere looks at what another node says that serves, or believes that it does.
func (k *client) peekElsewhere(but *model, id uint64, j *entryInBooks) {
	for _, p := range k.c.nodes {
		p.mu.Lock()
		q, up := p.queue, p.node != nil
		p.mu.Unlock()
		if up && q != but && q.serves() {
			k.peek(q, id, j)
		}
	}
}

// pick is a job that is there for certain.
func (k *client) pick() uint64 {
	for id, j := range k.jobs {
		if !j.maybeGone {
			return id
		}
	}
	return 0
}

// check compares the books with what there is.
func (k *client) check(q *model) {
	bodies := map[string]int{}
	for id, r := range q.jobs {
		bodies[string(r.Body)]++
		if j := k.jobs[id]; j != nil && (j.deleted || string(r.Body) != j.body || r.Buries < j.acked || r.Buries > j.tried) {
			k.t.Errorf("job %d is %q with change %d; the books say %+v", id, r.Body, r.Buries, *j)
		}
	}
	for id, j := range k.jobs {
		if _, ok := q.jobs[id]; !ok && !j.maybeGone {
			k.t.Errorf("job %d is lost: %+v", id, *j)
		}
		if bodies[j.body] > 1 {
			k.t.Errorf("%q was put once and is there %d times", j.body, bodies[j.body])
		}
	}
	if n := q.settings[k.name].Attempts; n < k.acked || n > k.tried {
		k.t.Errorf("the setting of %s is %d; %d were tried, and %d was acknowledged", k.name, n, k.tried, k.acked)
	}
	for body := range k.lost {
		if bodies[body] > 1 {
			k.t.Errorf("%q was put once and is there %d times", body, bodies[body])
		}
	}
}

// Nothing that was acknowledged is lost, comes back or changes, and no read is stale,
// whatever happens to network, machines, disks and clocks, as long as most disks keep
// what they have synced.
func TestJobsSurviveWhatAClusterMeets(t *testing.T) {
	t.Parallel()
	histories := *seeds
	if histories == 0 {
		histories = 1
		if proof {
			histories = 2
		}
	}
	for i := range histories {
		n := 3
		if i%2 == 1 {
			n = 5
		}
		t.Run(fmt.Sprintf("seed=%d", *seed+uint64(i)), func(t *testing.T) {
			t.Parallel()
			chaos(t, n, *seed+uint64(i))
		})
	}
}

func chaos(t *testing.T, n int, seed uint64) {
	c := newCluster(t, n, seed)
	c.timeout = 30
	for _, p := range c.nodes {
		p.bytes = 20_000
		p.clock.mono.Store(c.rng.Int64N(int64(time.Hour)))
		p.clock.pace.Store(c.rng.Int64N(200) - 100)
		p.clock.wall.Store(startOfTime + c.rng.Int64N(int64(2*time.Hour)) - int64(time.Hour))
	}
	c.startAll()
	stop := make(chan struct{})
	var group sync.WaitGroup
	clients := make([]*client, 3)
	for i := range clients {
		clients[i] = &client{
			t: t, c: c, rng: rand.New(rand.NewPCG(seed, uint64(10+i))), name: fmt.Sprintf("client%d", i),
			jobs: map[uint64]*entryInBooks{}, lost: map[string]bool{},
		}
		group.Go(func() { clients[i].run(stop) })
	}
	for range 40 {
		c.disturb()
		c.wait(c.rng.IntN(60))
	}
	c.heal()
	c.leader()
	close(stop)
	group.Wait()
	if d := c.settled(); d.Jobs == 0 {
		t.Error("there are no jobs")
	}
	for _, k := range clients {
		k.check(c.leader().queue)
	}
	c.checkTime()
}

// wait lets ticks pass.
func (c *cluster) wait(ticks int) {
	c.net.mu.Lock()
	until := c.net.tick + ticks
	c.net.mu.Unlock()
	c.eventually("time passes", func() bool {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		return c.net.tick >= until
	})
}

// disturb has something happen.
func (c *cluster) disturb() {
	p := c.nodes[c.rng.IntN(len(c.nodes))]
	switch c.rng.IntN(12) {
	case 0:
		c.net.isolate(p, true)
	case 1:
		o := c.nodes[c.rng.IntN(len(c.nodes))]
		c.net.set(func() { c.net.cut[link{p.id, o.id}] = true })
	case 2:
		loss := c.rng.Float64() / 3
		c.net.set(func() { c.net.drop = loss })
	case 3:
		twice := c.rng.Float64()
		c.net.set(func() { c.net.double = twice })
	case 4:
		delay := c.rng.IntN(6)
		c.net.set(func() { c.net.delay = delay })
	case 5:
		p.frozen.Store(true)
	case 6:
		p.clock.wall.Add(c.rng.Int64N(int64(2*time.Hour)) - int64(time.Hour))
	case 7:
		if n := p.running(); n != nil {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			_ = n.Transfer(ctx, 0)
			cancel()
		}
	case 8:
		p.kill()
	case 9:
		p.kill()
		p.fs = p.fs.PowerCut(c.rng)
	default:
		c.heal()
	}
}

// heal ends all disturbances, and starts what is down.
func (c *cluster) heal() {
	c.net.set(func() {
		clear(c.net.cut)
		c.net.drop, c.net.double, c.net.delay = 0, 0, 0
	})
	for _, p := range c.nodes {
		p.frozen.Store(false)
		if err, down := p.end(); down {
			if err != nil && !errors.Is(err, context.Canceled) && p.fs.Used() == 0 {
				c.t.Errorf("%s has ended: %v", p.name, err)
			}
			if err := c.start(p); err != nil {
				c.t.Fatalf("%s: %v", p.name, err)
			}
		}
	}
}

// checkTime checks that cluster time has never gone back from leadership to leadership, and that
// terms and ids have only grown.
func (c *cluster) checkTime() {
	var all []served
	c.served.Lock()
	defer c.served.Unlock()
	all = c.servedAll
	for i := range all {
		for _, s := range all {
			if s.term < all[i].term && (s.nextID > all[i].nextID || s.now > all[i].now) {
				c.t.Errorf("leadership %+v is followed by %+v", s, all[i])
			}
			if s.term == all[i].term && s != all[i] {
				c.t.Errorf("two leaderships of one term: %+v and %+v", s, all[i])
			}
		}
	}
}
