package shard

import (
	"errors"
	"math"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// A Bulk is an operation on many jobs of a tube, whoever has reserved them. It takes the
// first jobs out of queues, a slice under each lock. It may be copied between two turns.
type Bulk struct {
	shard  *shard
	locks  shardSet // of the shard, and of that to which jobs move
	tube   string   // it may disappear meanwhile, and come again
	verb   verb
	to     *shard    // where jobs move
	target string    // tube
	heads  [4]state  // the queues that are left, and then 0
	most   int       // how many jobs
	newest uint64    // the greatest id of them
	rest   *deletion // finds what is not at the heads of queues; nil for operations without
	of     *Client   // who moves jobs

	done   int         // jobs
	passed bool        // a job that came later stood before others
	end    int         // of the slice: what is left of the budget then
	pos    journal.Pos // in the journal that the reply depends on
}

// A verb is what a bulk does to jobs.
type verb uint8

const (
	kick verb = iota
	move
	remove
	flush // which leaves no tombstones
)

// sliceCosts are what a slice costs of each, after which others get the locks.
var sliceCosts = [...]int{kick: kickSlice, move: moveSlice, remove: scanSlice, flush: scanSlice}

const (
	kickSlice = 256
	// A slice of a move ends with the first job that exceeds these together.
	moveSlice      = 2 * scanSlice // its cost
	moveSliceBytes = 64 << 10      // of bodies that are copied
)

// Kick makes b, which is zero, a kick of at most bound jobs of the tube of that name, nil for the one that the client
// uses: the buried ones or, if none is buried, delayed ones.
func (c *Tx) Kick(now clock.Time, b *Bulk, cl *Client, name []byte, bound uint32, out *reply.Output) error {
	sh, t := c.lockTubeOr(now, name, cl, out)
	if t == nil {
		return reply.ErrNotFound
	}
	from := delayed
	if t.buried.Len() > 0 {
		from = buried
	}
	b.begin(t, kick, from, bound)
	sh.unlock(c)
	return nil
}

// MoveJobs makes b, which is zero, a move of the first jobs of a tube in one state to another tube.
func (c *Tx) MoveJobs(
	now clock.Time, cl *Client, b *Bulk, name []byte, of codec.State, bound uint32, to []byte, out *reply.Output,
) error {
	sh, t := c.lockTube(now, name, out)
	if t == nil {
		return reply.ErrNotFound
	}
	b.begin(t, move, stateOf(of), bound)
	b.to, b.target, b.of = c.shared.shardFor(to), string(to), cl
	b.locks |= b.to.self
	if b.tube == b.target {
		b.most = 0
	}
	sh.unlock(c)
	return nil
}

// begin makes b, which is zero, a bulk for the first jobs of a tube in one state. Its shard is
// locked.
func (b *Bulk) begin(t *tube, v verb, from state, bound uint32) {
	b.shard, b.locks, b.tube = t.shard, t.shard.self, t.name
	b.verb, b.newest = v, math.MaxUint64
	b.from(t, from, bound)
}

// from makes b take at most bound jobs that are in a state or shown to be. A kick leaves held ones.
func (b *Bulk) from(t *tube, in state, bound uint32) {
	n := t.count(in)
	b.heads[0] = in
	if in == delayed && (b.verb != kick || t.shard.shared.cfg.Stock) {
		n += t.count(held)
		b.heads[1] = held
	}
	b.most = int(min(int64(bound), int64(n)))
}

// Turn implements Work.
func (b *Bulk) Turn(c *Tx, now clock.Time, out *reply.Output) (n int, more bool, err error) {
	changes := out.Aside() // out depends on them no sooner than it has the reply
	for more = true; more; {
		c.lockAll(b.locks, now)
		b.end = *c.budget - sliceCosts[b.verb]
		more, err = b.next(&changes)
		c.unlockAll(b.locks)
		b.pos = max(b.pos, changes.Pos)
		c.spend(lockCost)
		switch {
		case errors.Is(err, journal.ErrRoom), waits(err), err != nil && b.done == 0:
			return 0, false, err
		case err != nil:
			more = false // the others stay as they are
		}
		if more && !c.left() {
			return b.done, true, nil
		}
	}
	out.DependOn(b.pos)
	if b.done == 0 {
		out.DependOn(b.shard.dependsOnEnds())
	}
	return b.done, false, nil
}

// full reports whether others are to get the locks.
func (b *Bulk) full() bool { return *b.shard.by.budget <= b.end }

// do does to a job what the operation is for. If it fails, nothing has changed.
func (b *Bulk) do(r ref, j *job, out *reply.Output) (err error) {
	sh, t, size, cost := b.shard, b.shard.tubes[j.tube], int(j.size), j.cost()
	anyOrder := b.verb == flush || b.verb == remove && j.state == reserved
	switch b.verb {
	case kick:
		err = sh.kick(r, j, out)
	case move:
		cost = j.moveCost()
		if err = sh.move(r, j, b.to, b.target, out); errors.Is(err, errCold) {
			err = b.missing(r, j)
		}
	case remove:
		err = sh.delete(r, j, out)
	case flush:
		if err = sh.deleteEntirely(r, j, out); err == nil {
			t.totals().flushed++
		}
	}
	if err != nil {
		return err
	}
	if b.verb == remove || b.verb == flush {
		t.deletes++
	}
	if anyOrder && t.fair != nil {
		t.fair.last = nil // it is whichever was found last
	}
	b.done++
	sh.by.spend(cost)
	if b.verb == move {
		b.end += size * moveSlice / moveSliceBytes
	}
	return nil
}

// next does a slice under the locks. It returns false at the end.
func (b *Bulk) next(out *reply.Output) (more bool, err error) {
	t := b.shard.byName[b.tube] // which is empty if it is removed meanwhile
	for b.heads[0] != 0 {
		r := b.first(t)
		switch {
		case r == 0:
			b.heads = [4]state{b.heads[1], b.heads[2], b.heads[3]}
		case b.full():
			return true, nil
		default:
			if err := b.do(r, b.shard.job(r), out); err != nil {
				return true, err
			}
		}
	}
	if b.rest == nil {
		return false, nil
	}
	return b.rest.next(b, out)
}

// first is the job to go on with from the first of heads, 0 when there is none, or no tube.
func (b *Bulk) first(t *tube) ref {
	if t == nil || b.done >= b.most {
		return 0
	}
	r := t.first(b.heads[0])
	if r != 0 && b.shard.job(r).ID > b.newest {
		b.passed = true
		return 0
	}
	return r
}

// missing is why the first job, whose body is not in memory, cannot be moved yet. The client waits for the bodies of a
// slice of jobs, as they come one after the other.
func (b *Bulk) missing(first ref, j *job) error {
	sh := b.shard
	c := sh.by
	if err := c.shared.loads.Failed(j.ID); err != nil {
		return err
	}
	list, bytes, looked := []journal.Fetch{j.fetch()}, int(j.size), 1
	for r := range sh.tubes[j.tube].all(b.heads[0]) {
		if looked++; bytes >= moveSliceBytes || looked > moveSlice {
			break
		}
		if k := sh.job(r); r != first && k.cold() {
			list = append(list, k.fetch())
			bytes += int(k.size)
		}
	}
	return c.await(b.of, list...)
}
