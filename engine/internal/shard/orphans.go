package shard

import (
	"slices"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// A job whose worker has lost its connection is an orphan, if the setting of its tube says that it lingers: it stays
// reserved, by nobody, until its time to run ends, or until so many seconds later. Until then whoever may reserve in
// its tube, and names it, is taken for its worker. Nothing that counts reserved jobs notices when one becomes an
// orphan, or is adopted.

// departure is how a client has left.
type departure uint8

const (
	isCutOff    departure = iota // its connection has ended
	hasQuit                      // so it has said: what it has reserved is for others at once
	serverStops                  // the server ends it because it stops itself: nothing has failed
)

// cause is how reservations end with the client.
func (how departure) cause() cause {
	if how == serverStops {
		return byStop
	}
	return byDisconnect
}

// orphans are what is reserved in a tube by nobody, by whose it was. The lock of the tube's shard guards them. The
// set's only list is in the order in which reservations end: by their time to run, or before.
type orphans struct {
	ReservationSet
	tube    *tube
	account string    // its clients adopt them, and those of no account; "" for all clients
	how     departure // of their workers
	end     bool      // all of them, now: the tube does not linger any more

	// lapsed is by what their reservations have ended, and then they wait for their bodies, to be dead letters: nobody
	// adopts them. It is byRelease, by which none of these ends, while they linger.
	lapsed cause
}

// linger reports whether o, which may be nil, are orphans that may be adopted or end by themselves.
func (o *orphans) linger() bool { return o != nil && o.lapsed == byRelease }

// lingers reports whether jobs stay reserved when their workers lose their connections.
func (t *tube) lingers() bool { return t.policy != nil && t.policy.Linger > 0 }

// countLingering counts a setting, nil for none, if jobs linger by it.
func (sh *shard) countLingering(x *journal.Setting, n int64) {
	if x != nil && x.Linger > 0 {
		sh.shared.lingering.Add(n)
	}
}

// Lingers reports whether there may be a tube that lingers. Any goroutine may call it.
func (e *Shards) Lingers() bool { return e.lingering.Load() > 0 }

// forsake ends the reservation of a client that has left, or makes an orphan of its job. The result is that of lapse.
func (sh *shard) forsake(r ref, j *job, account string, how departure) (taken *shard) {
	t := sh.tubes[j.tube]
	if how == hasQuit || !t.lingers() || j.storage&isUntold != 0 {
		return sh.giveBack(r, j, how.cause())
	}
	sh.orphan(r, j, account, how)
	return nil
}

// orphan makes an orphan of a job in a tube that lingers.
func (sh *shard) orphan(r ref, j *job, account string, how departure) {
	t := sh.tubes[j.tube]
	o := t.orphansOf(account, how, byRelease)
	sh.hand(r, j, &o.oldest, min(j.at(), sh.now+clock.Seconds(t.policy.Linger)))
}

// orphansOf are those of the tube that come from there, or have lapsed, to which others may be added.
func (t *tube) orphansOf(account string, how departure, lapsed cause) *orphans {
	for _, o := range t.orphans {
		if o.account == account && o.how == how && o.lapsed == lapsed && !o.end {
			return o
		}
	}
	o := &orphans{tube: t, account: account, how: how, lapsed: lapsed}
	o.nobody = o
	t.shard.reservationsOf(&o.ReservationSet).timer.Owner = o
	t.orphans = append(t.orphans, o)
	return o
}

// hand has a reserved job be one of other reservations, which end at a time.
func (sh *shard) hand(r ref, j *job, to *reservations, end clock.Time) {
	from := sh.reservations[j.Next]
	from.jobs.Remove(sh.table, &j.Links)
	if from != to {
		from.of.nobody.forget()
	}
	j.Next = to.index
	to.jobs.Push(sh.table, end.Key(), r, &j.Links)
	sh.arm(&to.timer, to.deadline())
}

// Expire ends the reservations that are due.
func (o *orphans) Expire(now int64) (done bool) {
	h, sh := &o.oldest, o.tube.shard
	for h.jobs.Len() > 0 && (o.end || h.deadline() <= clock.Time(now)) {
		if !sh.mayMove() {
			return false
		}
		e := h.jobs.First()
		j := sh.job(e.Ref)
		var taken *shard
		switch at := j.at(); {
		case !o.linger():
			taken = sh.lapse(e.Ref, j, o.lapsed)
		case at <= clock.Time(now) && at.Key() == e.Key:
			taken = sh.lapse(e.Ref, j, byTimeOut)
		default:
			taken = sh.giveBack(e.Ref, j, o.how.cause())
		}
		if taken != nil {
			return false // it ends a moment later
		}
	}
	o.forget()
	sh.arm(&h.timer, h.deadline())
	return true
}

// endOrphans ends all orphans of a tube that does not linger any more, in turns.
func (t *tube) endOrphans() {
	for _, o := range slices.Clone(t.orphans) {
		if !o.linger() {
			continue
		}
		o.end = true
		if !o.Expire(int64(t.shard.now)) {
			t.shard.arm(&o.oldest.timer, t.shard.now+1)
		}
	}
}

// forget frees the list if none is left of the orphans. o may be nil.
func (o *orphans) forget() {
	if o == nil || o.oldest.jobs.Len() > 0 {
		return
	}
	if i := slices.Index(o.tube.orphans, o); i >= 0 {
		o.oldest.free()
		o.tube.orphans = slices.Delete(o.tube.orphans, i, i+1)
	}
}

// orphaned is how many orphans the tube has.
func (t *tube) orphaned() (n int) {
	for _, o := range t.orphans {
		if o.linger() {
			n += o.oldest.jobs.Len()
		}
	}
	return n
}

// orphansWith are those of which a reserved job is one, nil for none.
func (sh *shard) orphansWith(j *job) *orphans { return sh.reservations[j.Next].of.nobody }

// worksOn reports whether a client is j's worker: it has reserved the job, or may adopt it.
func (sh *shard) worksOn(cl *Client, j *job) bool {
	return j.state == reserved && (sh.reservations[j.Next].of == cl.reserved || sh.mayAdopt(cl, j))
}

// mayAdopt reports whether a reserved job is an orphan, or may be one soon because nobody hears of its client, and a
// client may be taken for its worker.
func (sh *shard) mayAdopt(cl *Client, j *job) bool {
	t, of := sh.tubes[j.tube], sh.reservations[j.Next].of
	switch {
	case of.nobody != nil:
		return of.nobody.linger() && cl.watched[0].waiter.Adopts(t.name, of.nobody.account)
	case of.holder == nil || !t.lingers():
		return false
	}
	account := of.holder.absent.Load()
	return account != nil && cl.watched[0].waiter.Adopts(t.name, *account)
}

// adopt makes an orphan the client's, or what an absent session has, and its time to run begins anew. That is on record
// if the client's reservations are. more is how many reserves it counts as.
func (sh *shard) adopt(cl *Client, r ref, j *job, more uint32, out *reply.Output) error {
	to, end := sh.reservationsOf(cl.set()), sh.now+clock.Seconds(j.ttr)
	if to.of.holder != nil && sh.reservations[j.Next].of.holder != nil {
		out.DependOn(sh.recordReserved(j, j.at(), sh.counters.At(j.counters).reserves)) // no session has it any more
	}
	if err := sh.recordEnd(to.of, j, end, more, out); err != nil {
		return err
	}
	n := sh.counters.At(j.counters)
	n.reserves += more
	n.order = to.of.made
	to.of.made++
	j.At = int64(end)
	sh.hand(r, j, to, end)
	return nil
}

// Reclaim makes an orphan the client's again, which an earlier server had reserved for it by a command that is answered
// now: that server has ended the client's session, but the reply was lost. It counts as a touch.
func (c *Tx) Reclaim(now clock.Time, id uint64, cl *Client, out *reply.Output) error {
	sh, r, j := c.shared.lockJob(c, id, now)
	if sh == nil {
		return nil
	}
	var err error
	if j.state == reserved && sh.orphansWith(j) != nil && sh.mayAdopt(cl, j) {
		err = sh.adopt(cl, r, j, 0, out)
	}
	sh.unlock(c)
	return err
}
