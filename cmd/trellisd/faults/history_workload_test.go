package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Workload has clients use some tubes of a cluster with all commands that the model knows. They use each of Tubes in
// another way, and of more than there are ways the next one in the first way again.
type Workload struct {
	Recorder *Recorder
	Tubes    []string
	Clients  int             // of each tube
	Jobs     int             // that are alive in a tube at a time, about
	Addrs    func() []string // client addresses of all nodes
	Seed     uint64          // of what clients choose; 0 is by chance
	Full     bool            // a disk may be: commands are refused for want of room
	Waits    bool            // clients wait for jobs, now and then, send some commands at once, and half-close
	Recorded bool            // who waits for a reply can get it from the next leader, by its log, whatever was lost
	Rest     time.Duration   // of each client before each command, at most; 0 is none

	pools map[string]*pool // by tube
}

// pool is what the clients of a tube know of its jobs.
type pool struct {
	tube string
	way  way

	mu   sync.Mutex
	ids  []uint64 // guarded by mu; of jobs that may be there
	all  []uint64 // guarded by mu; that were ever there
	keys []int    // guarded by mu; numbers of puts with unique keys

	limited, grouped kin // guarded by mu
}

// way is how the clients of a tube use it.
type way uint8

const (
	withDeadLetters way = iota // jobs become dead letters, are moved, and flushed at times; some are of families
	withKeys                   // some jobs have unique keys; some are of families
	withBriefTimes             // jobs may be worked on for some seconds only, and some expire
	withLinger                 // jobs linger, and clients go on with what they held
	withBounds                 // so many jobs are worked on
	ways
)

// hasFamilies reports whether jobs have limited keys and groups.
func (w way) hasFamilies() bool { return w == withDeadLetters || w == withKeys }

// kin is the last family of a kind.
type kin struct{ number, jobs int }

// maxKin is how many jobs there are in a family. They are checked together, and more would take long.
const maxKin = 3

// another is the number of the family of another job.
func (p *pool) another(k *kin, fresh func() int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.number == 0 || k.jobs == maxKin {
		*k = kin{number: fresh()}
	}
	k.jobs++
	return k.number
}

// anyKey is the number of a put with a key: one that was used, or fresh.
func (p *pool) anyKey(rng *rand.Rand, fresh func() int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.keys) > 0 && rng.IntN(2) == 0 {
		return p.keys[len(p.keys)-1-rng.IntN(min(20, len(p.keys)))]
	}
	p.keys = append(p.keys, fresh())
	return p.keys[len(p.keys)-1]
}

// clear forgets which jobs may be there.
func (p *pool) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ids = nil
}

func (p *pool) add(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.all, id) {
		p.ids, p.all = append(p.ids, id), append(p.all, id)
	}
}

func (p *pool) remove(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ids = slices.DeleteFunc(p.ids, func(x uint64) bool { return x == id })
}

// any is an id that may be there, mostly; 0 if there is none.
func (p *pool) any(rng *rand.Rand) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(p.ids) > 0 && rng.IntN(20) > 0:
		return p.ids[rng.IntN(len(p.ids))]
	case len(p.all) > 0:
		return p.all[rng.IntN(len(p.all))]
	}
	return 0
}

func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ids)
}

// Run has all clients work until ctx ends, and closes them. Its error tells of replies
// that no server may give. Connections that are lost are part of the history, and no error.
func (w *Workload) Run(ctx context.Context) error {
	w.pools = map[string]*pool{}
	var all errgroup.Group
	for n, tube := range w.Tubes {
		p := &pool{tube: tube, way: way(n) % ways}
		w.pools[tube] = p
		for i := range w.Clients {
			all.Go(func() error {
				c := w.Recorder.NewClient(tube, w.Addrs)
				defer c.Close()
				if err := w.prepare(ctx, c, p.way, n); err != nil {
					if ctx.Err() != nil {
						return nil
					}
					return err
				}
				c.rests = w.Rest
				if i%2 == 1 {
					c.waits = patient
					if p.way != withBriefTimes {
						c.rests = max(c.rests, time.Second)
					}
				}
				return w.client(ctx, c, p, w.dice(uint64(n*w.Clients+i)))
			})
		}
	}
	return all.Wait()
}

// prepare makes the setting of the tube with that number in the list.
func (w *Workload) prepare(ctx context.Context, c *Client, way way, tube int) error {
	switch way {
	case withDeadLetters:
		err := c.SetDeadLetters(ctx, attempts)
		for w.Full && errors.Is(err, ErrNoRoom) {
			time.Sleep(w.Recorder.Pause)
			err = c.SetDeadLetters(ctx, attempts)
		}
		return err
	case withLinger:
		return c.Linger(ctx, lingerTime)
	case withBounds:
		if tube/int(ways)%2 == 0 {
			return c.Bound(ctx, Bounds{Reserved: 1})
		}
		return c.Bound(ctx, Bounds{Apart: apartTime})
	}
	return nil
}

const (
	// lingerTime is how long jobs linger in some tubes.
	lingerTime = 4 * time.Second
	// apartTime is how far apart jobs begin in some tubes.
	apartTime = 3 * time.Second
	// expiryTime is after which some jobs are not begun any more.
	expiryTime = 2 * time.Second
)

// attempts is how many failed reservations make a job a dead letter.
const attempts = 2

// dice are those of a client.
func (w *Workload) dice(client uint64) *rand.Rand {
	if w.Seed == 0 {
		return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	return rand.New(rand.NewPCG(w.Seed, client))
}

func (w *Workload) client(ctx context.Context, c *Client, p *pool, rng *rand.Rand) error {
	for ctx.Err() == nil {
		if c.Connect(ctx) != nil {
			return nil // it is over
		}
		if c.rests > 0 {
			// So that a stopped node has commands that were sent after its successor has
			// changed things: answered from its old state, they are wrong.
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(rng.Int64N(int64(c.rests)))):
			}
		}
		if err := w.command(c, p, rng); err != nil && !errors.Is(err, ErrLost) && !(w.Full && errors.Is(err, ErrNoRoom)) {
			return err
		}
	}
	return nil
}

// command does something.
func (w *Workload) command(c *Client, p *pool, rng *rand.Rand) error {
	if held := c.Holds(); len(held) > 0 && (len(held) > 3 || rng.IntN(2) == 0) {
		id := held[rng.IntN(len(held))]
		if w.Waits && (!w.Recorded || p.way.hasFamilies()) && rng.IntN(2) == 0 {
			return w.finishAndReserve(c, p, id, rng)
		}
		return finish(c, p, id, rng)
	}
	if len(c.left) > 0 {
		id := c.left[0]
		c.left = c.left[1:]
		return finish(c, p, id, rng)
	}
	kind := rng.IntN(100)
	if w.Waits && kind < 4 {
		if id := p.any(rng); id != 0 && !w.Recorded && kind == 0 {
			return c.flood(id, 40, time.Duration(rng.Int64N(int64(2*time.Second))))
		} else if id != 0 {
			return stare(c, id, rng)
		}
	}
	if p.way == withKeys && kind < 20 {
		number := p.anyKey(rng, w.Recorder.number)
		id, err := c.PutKeyed(number, number%200)
		if err == nil && id != 0 {
			p.add(id)
		}
		return err
	}
	if p.size() < w.Jobs && kind < 40 {
		id, err := w.put(c, p, rng)
		if err == nil && id != 0 {
			p.add(id)
		}
		return err
	}
	if w.Waits && !p.way.hasFamilies() && kind >= 45 && kind < 55 {
		ids, err := c.ReserveBatch()
		for _, id := range ids {
			p.add(id)
		}
		return err
	}
	if kind < 55 {
		wait := 0
		if w.Waits {
			wait = rng.IntN(3)
		}
		id, err := c.ReserveWithin(wait)
		if err == nil && id != 0 {
			p.add(id) // its put may have had no reply
		}
		return err
	}
	if kind < 65 {
		return c.Look([]Verb{PeekReady, PeekDelayed, PeekBuried}[rng.IntN(3)])
	}
	id := p.any(rng)
	switch {
	case id == 0:
		return nil
	case p.way == withDeadLetters && kind < 70:
		return c.Move(id, p.anyTube(rng))
	case p.way == withDeadLetters && kind == 99 && !w.Recorded && rng.IntN(3) == 0:
		// The log does not tell how far a flush came, nor that another client is refused what it does to a job that it
		// held before.
		p.clear()
		return c.Flush()
	}
	verb := []Verb{StatsJob, Peek, KickJob, ReserveJob, Delete, KickJob, StatsJob}[rng.IntN(7)]
	if p.way == withLinger && (verb == ReserveJob || verb == Delete) {
		verb = StatsJob // only its worker names a job: who does is taken for it while nobody hears of that one
	}
	o, err := c.Job(verb, id)
	if o.Reply == "DELETED" {
		p.remove(id)
	}
	return err
}

// put puts a job as clients of the tube do.
func (w *Workload) put(c *Client, p *pool, rng *rand.Rand) (id uint64, err error) {
	pri, delay := rng.Uint32N(10), anyDelay(rng)
	switch kind := rng.IntN(6); {
	case p.way == withBriefTimes:
		expires := time.Duration(0)
		if kind == 0 {
			expires = expiryTime
		}
		ttr := []time.Duration{briefTTR, 2 * briefTTR, longTTR * time.Second}[rng.IntN(3)]
		return c.PutBrief(ttr, expires, w.size(rng))
	case p.way.hasFamilies() && kind < 2:
		number := p.another(&p.limited, w.Recorder.number)
		return c.PutLimited(number, 1+rng.Uint32N(5)/4, pri, delay, rng.IntN(200))
	case p.way.hasFamilies() && kind < 4:
		number := p.another(&p.grouped, w.Recorder.number)
		return c.PutGrouped(number, rng.IntN(3) == 0, pri, delay, rng.IntN(200))
	}
	return c.Put(pri, delay, rng.IntN(200))
}

// size is that of a small body, mostly; of clients that do not send one command after the other it is now and then more
// than may be under way.
func (w *Workload) size(rng *rand.Rand) int {
	if w.Waits && !w.Recorded && rng.IntN(3) == 0 {
		return rng.IntN(60_000)
	}
	return rng.IntN(200)
}

// finishAndReserve finishes a job, asks for the next one at once, and waits for that. Now and then the client sends no
// more then.
func (w *Workload) finishAndReserve(c *Client, p *pool, id uint64, rng *rand.Rand) error {
	wait := rng.IntN(5)
	ops := []Op{
		{Verb: []Verb{Touch, Delete, StatsJob}[rng.IntN(3)], ID: id}, {Verb: Reserve, Wait: time.Duration(wait) * time.Second},
	}
	if w.Recorded && ops[0].Verb == StatsJob {
		ops[0].Verb = Touch
	}
	c.leaves = rng.IntN(8) == 0
	err := c.doAll(ops, fmt.Sprintf("%s %d\r\nreserve-with-timeout %d\r\n", ops[0].Verb, id, wait))
	if ops[0].Reply == "DELETED" {
		p.remove(id)
	}
	if got := ops[1].ID; got != 0 {
		p.add(got)
	}
	return err
}

// stare looks at a job again and again, and does not read for a while.
func stare(c *Client, id uint64, rng *rand.Rand) error {
	ops := make([]Op, 1+rng.IntN(4))
	for i := range ops {
		ops[i] = Op{Verb: Peek, ID: id}
	}
	c.dozes = time.Duration(rng.Int64N(int64(2 * time.Second)))
	return c.doAll(ops, strings.Repeat(fmt.Sprintf("%s %d\r\n", Peek, id), len(ops)))
}

// anyTube is the tube, or that of its dead letters.
func (p *pool) anyTube(rng *rand.Rand) string {
	if rng.IntN(2) == 0 {
		return DeadTube(p.tube)
	}
	return p.tube
}

// finish does something to a job that the client holds.
func finish(c *Client, p *pool, id uint64, rng *rand.Rand) error {
	if p.way == withDeadLetters && rng.IntN(6) == 0 {
		return c.Move(id, p.anyTube(rng))
	}
	switch rng.IntN(4) {
	case 0:
		return c.Release(id, rng.Uint32N(10), anyDelay(rng))
	case 1:
		return c.Bury(id, rng.Uint32N(10))
	case 2:
		_, err := c.Job(Touch, id)
		return err
	}
	o, err := c.Job(Delete, id)
	if o.Reply == "DELETED" {
		p.remove(id)
	}
	return err
}

// anyDelay is none, or so long that it does not end during a test.
func anyDelay(rng *rand.Rand) uint32 {
	if rng.IntN(3) > 0 {
		return 0
	}
	return longTTR + rng.Uint32N(100)
}

// ReserveMuch has a client of a server put two jobs with long bodies, and reserve both at once behind before. The time
// to run of one of them ends a second later.
func (r *Recorder) ReserveMuch(addr string, before func()) error {
	ctx, cancel := context.WithTimeout(context.Background(), hasty)
	defer cancel()
	c := r.NewClient("much", func() []string { return []string{addr} })
	c.waits = patient
	defer c.Close()
	if c.Connect(ctx) != nil {
		return nil // for want of a leader
	}
	_, err := c.PutBrief(time.Second, 0, 50_000)
	if err == nil {
		_, err = c.PutBrief(longTTR*time.Second, 0, 50_000)
	}
	if err == nil {
		before()
		_, err = c.ReserveBatch()
	}
	if errors.Is(err, ErrLost) || errors.Is(err, ErrNoRoom) {
		return nil
	}
	return err
}

// Audit is the last part of a history. It looks at every job that was ever known, so that one
// that was acknowledged and lost is noticed, and one that should have expired. Then it reserves and deletes what is
// ready, so that a job is noticed that its limited key keeps back although nothing is reserved any more, or its group
// although that is complete, and deletes the rest. It needs a cluster that serves, or comes to do so before ctx ends.
func (w *Workload) Audit(ctx context.Context) error {
	time.Sleep(2 * expiryTime) // by the clock of a server, which may be slow
	for _, tube := range w.Tubes {
		p := w.pools[tube]
		tubes := []string{tube}
		if p.way == withDeadLetters {
			tubes = append(tubes, DeadTube(tube))
		}
		for _, tube := range tubes {
			c := w.Recorder.NewClient(tube, w.Addrs)
			err := w.audit(ctx, c, p)
			c.Close()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Workload) audit(ctx context.Context, c *Client, p *pool) error {
	if err := c.AwaitUnreserved(ctx); err != nil {
		return err
	}
	if p.way == withBounds { // which would take long
		if err := c.Bound(ctx, Bounds{Reserved: 1}); err != nil {
			return err
		}
	}
	c.late = true
	for _, verb := range []Verb{StatsJob, Peek} {
		for _, id := range p.all {
			if err := c.again(ctx, func() error { _, err := c.Job(verb, id); return err }); err != nil {
				return err
			}
		}
	}
	for found := true; found; {
		lost := c.Lost()
		err := c.again(ctx, func() error {
			id, err := c.Reserve()
			found = id != 0
			if found && err == nil {
				_, err = c.Job(Delete, id)
			}
			return err
		})
		if err == nil && c.Lost() > lost {
			found = true // what a lost connection has reserved is ready soon
			err = c.AwaitUnreserved(ctx)
		}
		if err != nil {
			return err
		}
	}
	// What nobody knows of was put without a reply: it is ready or delayed.
	for _, verb := range []Verb{PeekReady, PeekDelayed, PeekBuried} {
		for found := true; found; {
			err := c.again(ctx, func() error {
				o, err := c.do(Op{Verb: verb}, string(verb))
				found = o.ID != 0
				if found && err == nil {
					_, err = c.Job(Delete, o.ID)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
