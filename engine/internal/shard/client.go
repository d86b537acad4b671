package shard

import (
	"sync/atomic"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
)

// A Client is a session in the sight of shards: which tubes it uses and watches, what it has reserved, and whether
// it waits. It belongs to its loop. Others touch only its claim and, while they hold it claimed, what it
// has reserved.
type Client struct {
	used     *tube           // nil once a closed client has left all that others can see
	watched  []subscription  // never empty while open; does not change while the client waits
	first    [1]subscription // where watched lies until there is a second tube, and again when that is the only one
	reserved *ReservationSet // made with the first reservation

	claimed       atomic.Uint32
	watchedShards shardSet
	Flags         uint16 // the session's
}

// A client's claim decides who ends its wait for a job. It is free, or the client
// waits, or a goroutine has taken it by the one step from waiting to claimed. A
// goroutine that claims it in order to hand a job over owns the client until
// the loop has found it in its mailbox.
const (
	claimFree uint32 = iota
	claimWaiting
	claimTaken
)

// TubeUsed is the name of the tube that the client uses.
func (cl *Client) TubeUsed() string { return cl.used.name }

// Watching is how many tubes the client watches.
func (cl *Client) Watching() int { return len(cl.watched) }

// TubeWatched is the name of one of these.
func (cl *Client) TubeWatched(i int) string { return cl.watched[i].tube.name }

// isFree reports whether nobody has to end a wait of the client, nor has ended one of which the loop does not know.
func (cl *Client) isFree() bool { return cl.claimed.Load() == claimFree }

// IsClaimed reports whether somebody has claimed the client to hand it a job.
func (cl *Client) IsClaimed() bool { return cl.claimed.Load() == claimTaken }

// set returns the client's reservations, which it makes if need be.
func (cl *Client) set() *ReservationSet {
	if cl.reserved == nil {
		cl.reserved = new(ReservationSet)
	}
	return cl.reserved
}

// A watchList is the tubes that a client watches, whose shards are locked, in the sight of its weights.
type watchList Client

// Len implements [weights.Tubes].
func (l *watchList) Len() int { return len(l.watched) }

// Reserved implements [weights.Tubes].
func (l *watchList) Reserved(place int) (n int, ok bool) {
	t := l.watched[place].tube
	return t.reserved, t.candidate() != 0
}

// left is what has to be known of a client that has left: the name of its account, "" for none, and the job that it
// was handed and not told of, 0 for none. Of one that nobody carries no such job is known.
func (cl *Client) left() (account string, untold uint64) {
	if len(cl.watched) == 0 {
		return *cl.reserved.holder.absent.Load(), 0
	}
	return cl.watched[0].waiter.Left()
}

// claim ends the client's wait, in one atomic step, so that it gets one job.
func (cl *Client) claim() bool { return cl.claimed.CompareAndSwap(claimWaiting, claimTaken) }

// Arrive makes a new client use and watch the default tube or, if it may not have that, one of that name that is
// always empty, and that nobody puts into.
func (c *Tx) Arrive(now clock.Time, cl *Client, w waiter, mayDefault bool) {
	t := c.shared.defaultTube
	if !mayDefault {
		t = c.shared.emptyTube
	}
	c.attend(now, t, 1, 1)
	cl.used = t
	cl.first = [1]subscription{{waiter: w, tube: t}}
	cl.watched = cl.first[:]
	cl.watchedShards = t.shard.self
}

// Use makes the client use the tube of that name. It returns false if there are as many tubes already as there may
// be.
func (c *Tx) Use(now clock.Time, cl *Client, name []byte) bool {
	t := c.enter(now, name, 1, 0, true)
	if t == nil {
		return false
	}
	old := cl.used
	cl.used = t
	c.attend(now, old, -1, 0)
	return true
}

// Watch makes the client watch the tube of that name, and returns the tube's place in its list. It returns -1 if
// there are as many tubes already as there may be, or as the client may watch.
func (c *Tx) Watch(now clock.Time, cl *Client, name []byte) int {
	sh := c.shared.shardFor(name)
	sh.lock(c, now)
	old := sh.byName[string(name)]
	sh.unlock(c)
	c.spend(len(cl.watched) / watchesPerCost)
	// A tube that it watches stays. A long list is not searched under the lock.
	for i := range cl.watched {
		if cl.watched[i].tube == old {
			return i
		}
	}
	if limit := c.shared.cfg.Limits.Watched; limit != 0 && len(cl.watched) >= limit {
		c.shared.usage.refusedWatching.Add(1)
		return -1
	}
	t := c.enter(now, name, 0, 1, true)
	if t == nil {
		return -1
	}
	cl.watched = append(cl.watched, subscription{waiter: cl.watched[0].waiter, tube: t})
	cl.watchedShards |= t.shard.self
	return len(cl.watched) - 1
}

// Ignore takes the tube of that name off the client's list, where the last one takes its place. It returns the
// place, -1 if the client does not watch the tube, and false if it watches no other one.
func (c *Tx) Ignore(now clock.Time, cl *Client, name []byte) (i int, ok bool) {
	c.spend(len(cl.watched) / watchesPerCost)
	last := len(cl.watched) - 1
	for i = last; i >= 0 && cl.watched[i].tube.name != string(name); i-- {
	}
	if i < 0 || last == 0 {
		return i, i < 0
	}
	t := cl.watched[i].tube
	cl.watched[i] = cl.watched[last]
	cl.watched[last] = subscription{}
	cl.watched = cl.watched[:last]
	cl.watchedShards = 0
	for i := range cl.watched {
		cl.watchedShards |= cl.watched[i].tube.shard.self
	}
	// Whoever has gone to another tube needs no list any more. Whoever has come back to
	// the first one may do so again and again.
	if last == 1 && cl.watched[0].tube != cl.first[0].tube {
		cl.first[0] = cl.watched[0]
		cl.watched = cl.first[:]
	}
	c.attend(now, t, 0, -1)
	return i, true
}

// GoBackTo makes a new client use and watch tubes of these names, in their order. No limit keeps it from that. There
// may be another tube of the name of that with which it has begun, which is not the client's.
func (c *Tx) GoBackTo(now clock.Time, cl *Client, used string, watched []string) {
	first, w := cl.used, cl.watched[0].waiter
	enter := func(name string, using, watching int) *tube {
		if name != first.name {
			return c.enter(now, []byte(name), using, watching, false)
		}
		c.attend(now, first, using, watching)
		return first
	}
	cl.watchedShards = 0
	list := make([]subscription, len(watched))
	for i, name := range watched {
		t := enter(name, 0, 1)
		list[i] = subscription{waiter: w, tube: t}
		cl.watchedShards |= t.shard.self
	}
	if cl.watched = list; len(list) == 1 {
		cl.first[0] = list[0]
		cl.watched = cl.first[:]
	}
	cl.used = enter(used, 1, 0)
	c.attend(now, first, -1, -1) // it stays, whoever uses it
}

// Inherit makes a new client that nobody carries have what an absent session has reserved, so that it is given
// back. The session's number is gone, which is on record up to pos, or 0 if it is not. It returns the session's id.
func (c *Tx) Inherit(cl *Client, held *ReservationSet, pos journal.Pos) (session uint64) {
	nobodys := c.shared.emptyTube
	c.attend(0, nobodys, 1, 0)
	cl.used, cl.reserved = nobodys, held
	held.holder.gone = pos
	return held.holder.Session
}

// enter counts clients that use, or watch, the tube of that name, which is made if there is none. If a client
// asks for it, the result is nil where there are as many tubes already as there may be.
func (c *Tx) enter(now clock.Time, name []byte, using, watching int, asked bool) *tube {
	sh := c.shared.shardFor(name)
	sh.lock(c, now)
	t := sh.tube(name, asked)
	if t != nil {
		t.using += using
		t.watching += watching
	}
	sh.unlock(c)
	return t
}

// attend counts more clients, or fewer, that use or watch a tube. It ends a tube that nobody needs any more.
func (c *Tx) attend(now clock.Time, t *tube, using, watching int) {
	sh := t.shard
	sh.lock(c, now)
	t.using += using
	t.watching += watching
	sh.removeIfUnused(t)
	sh.unlock(c)
}
