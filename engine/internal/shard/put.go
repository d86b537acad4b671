package shard

import (
	"errors"
	"slices"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/account"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/ids"
	"trellis/engine/internal/reply"
)

// Incoming is a put whose body is still arriving, or whose record waits for room in the journal. It
// belongs to the loop of its client, which uses the tube to which it is put. Its body has its place in
// the shard's memory already and is written there as it arrives, without the shard's lock: nobody else
// knows of it. The place costs only addresses before it is written to, so the body is counted as it
// arrives.
type Incoming struct {
	id                    uint64 // 0 when there is no memory: the body is discarded
	pri, delay, ttr, size uint32
	body                  ref
	keys                  *journal.Keys  // nil if it has no tags
	bytes                 []byte         // the body; nil for a put whose body came at once, unless it waits for room
	missing               []byte         // the rest of bytes, which is still to be filled
	account               *account.Tally // that it was admitted to; nil for none
	timed                 bool           // it is known when it expires, or that it does not
	complete              bool           // all of the body has come
	since                 clock.Time     // when it was complete
	ticket                journal.Ticket // of a large body, which is on record before it is a job
	era                   uint32         // of that record: see purse.ahead
}

// bodyStep is how many bytes of a body are counted at a time as it arrives.
const bodyStep = 4 << 10

// counted is the memory that n bytes of a body of size bytes are counted for.
func counted(n int, size uint32) int64 {
	all := arena.Footprint(size)
	if n == int(size) {
		return all
	}
	return min(all, int64(n+bodyStep-1)&^(bodyStep-1))
}

// arrived is how many bytes of the body have.
func (in *Incoming) arrived() int { return int(in.size) - len(in.missing) }

// fill makes j the record of the job that it becomes, which stands nowhere yet.
func (in *Incoming) fill(j *job) {
	*j = job{}
	j.ID, j.created, j.ttr, j.size, j.body = in.id, in.since, max(in.ttr, 1), in.size, in.body
}

// change makes ch, which is zero, what becomes of that job.
func (in *Incoming) change(ch *change) {
	ch.to, ch.pri = ready, in.pri
	if in.delay > 0 {
		ch.to, ch.at = delayed, in.since+clock.Seconds(in.delay)
		ch.counters.delay = in.delay
	}
}

// Put makes a job of a put whose whole body is in hand, and returns its id. Where its unique key has a holder,
// it appends the reply that says so, and the id is 0. Where the journal has no room, the put waits: rest
// is to be finished with EndPut when there is some. A put that is refused, and for which there would be room, uses
// up an id, and the result is the refusal.
func (c *Tx) Put(now clock.Time, cl *Client, cmd *codec.Command, refusal error, out *reply.Output) (
	id uint64, rest *Incoming, err error,
) {
	t := cl.used
	var keys *journal.Keys
	timed := false
	if cmd.Tags != nil {
		keys, timed = c.keys.set(cmd.Tags), cmd.Tags.HasExpiry
	}
	account, ok := c.admit(t, cmd.Size, keys)
	if !ok {
		return 0, nil, errNoMemory
	}
	if refusal != nil {
		c.dismiss(account, keys, arena.Footprint(cmd.Size))
		c.shared.ids.Retire(c.ids.Take(0))
		return 0, nil, refusal
	}
	sh := t.shard
	sh.lock(c, now)
	body, err := sh.allocBody(cmd.Size)
	if err != nil {
		sh.unlock(c)
		c.dismiss(account, keys, arena.Footprint(cmd.Size))
		return 0, nil, err
	}
	copy(sh.bodies.Bytes(body, cmd.Size), cmd.Body)
	sh.lastID = c.ids.Take(sh.lastID)
	var in Incoming
	in.id, in.pri, in.delay, in.ttr = sh.lastID, cmd.Pri, cmd.Delay, cmd.TTR
	in.size, in.body, in.keys, in.account, in.timed, in.since = cmd.Size, body, keys, account, timed, now
	if t.policy != nil {
		c.setExpiry(t, &in)
	}
	id = in.id
	if err = c.roomFor(&in, now); err == nil {
		err = c.insert(t, &in, out)
	} else {
		err = c.abort(t, &in, err, out)
	}
	if err != nil {
		if errors.Is(err, journal.ErrRoom) {
			in.bytes, in.complete = sh.bodies.Bytes(body, cmd.Size), true
			rest = c.keep(in)
			c.keepKeys(rest)
		}
		id, err = answered(id, err)
	}
	sh.unlock(c)
	return id, rest, err
}

// answered is the result of a put that has failed: if it was answered already, that is no error.
func answered(id uint64, err error) (uint64, error) {
	if errors.Is(err, errDuplicate) {
		return 0, nil
	}
	return id, err
}

// errNoMemory: a limit, or what an account may have, allows no more.
var errNoMemory = errors.New("there is no room for a job")

// setExpiry gives a put without the tag exp the expiry that the setting of its tube says. The
// shard is locked. What it takes is counted without asking. The keys of
// the put are the loop's then.
func (c *Tx) setExpiry(t *tube, in *Incoming) {
	p := t.policy
	if p == nil || p.Expire == 0 || in.timed || !c.shared.log.RecordsAll() {
		return
	}
	before, keys := keysFootprint(in.keys), &c.keys
	in.keys, in.timed = keys.copy(in.keys), true
	keys.terms.Expires, keys.Terms = p.Expire, &keys.terms
	more := keysFootprint(in.keys) - before
	c.countBytes(more)
	in.account.Add(0, more)
}

// admit counts a put with a body of size bytes and these keys, which may be nil, unless it
// would be too much for the server or for the account of the tube, or others could not read
// its record. It returns that account.
func (c *Tx) admit(t *tube, size uint32, keys *journal.Keys) (account *account.Tally, ok bool) {
	account = t.Account()
	if keys == nil && account == nil {
		return nil, c.charge(size, nil)
	}
	if keys != nil && keys.Terms != nil && !c.shared.log.RecordsAll() {
		return nil, false
	}
	if account != nil && !account.Admit(jobFootprint(size, keys)) {
		return nil, false
	}
	if !c.charge(size, keys) {
		account.Dismiss(jobFootprint(size, keys))
		return nil, false
	}
	return account, true
}

// insert makes a job of a put whose body lies in the shard, records it if it is not on
// record, and queues it. If that cannot be, it frees all that the put took, unless the
// journal will soon have room.
func (c *Tx) insert(t *tube, in *Incoming, out *reply.Output) error {
	sh := t.shard
	if in.keys != nil {
		c.spend(keyedCost)
		if err := c.findDuplicate(t, in, out); err != nil {
			return c.abort(t, in, err, out)
		}
	}
	r, j, err := sh.newJob()
	if err != nil {
		return c.abort(t, in, err, out)
	}
	in.fill(j)
	j.tube = t.index
	// The index has the job before the journal does: Migrate must find all that the journal has.
	sh.shared.ids.Put(in.id, ids.PlaceOf(sh.number, r))
	var ch change
	in.change(&ch)
	switch {
	case in.keys != nil:
		var k *keyed
		if k, err = sh.attachNew(t, j, in.keys); err == nil {
			if x := k.terms; x != nil && x.After != "" && sh.holdBack(j.ID, x, false) {
				ch.to, ch.at = held, clock.MaxTime
			}
			err = sh.change(r, j, &ch, out)
		}
	case in.ticket.Segment == 0:
		err = sh.change(r, j, &ch, out)
	default:
		if err = sh.provide(j, &ch); err == nil {
			err = sh.placeRoom()
		}
		if err == nil {
			sh.recordedPut(j, in.ticket, out)
			sh.apply(r, j, &ch)
			c.ahead[in.era].Add(-1)
		}
	}
	if err != nil {
		sh.freeRecord(r, j)
		sh.shared.ids.Put(in.id, 0)
		return c.abort(t, in, err, out)
	}
	t.CountAdmitted(in.account, jobFootprint(in.size, in.keys))
	t.puts++
	sh.totals.puts++
	sh.dispatch(t)
	return nil
}

// abort ends a put that cannot become a job. It frees what the put took, and returns why.
// If the reason is that the journal has no room at this moment, it frees nothing: the put
// is tried again.
func (c *Tx) abort(t *tube, in *Incoming, why error, out *reply.Output) error {
	if errors.Is(why, journal.ErrRoom) {
		return why
	}
	if err := c.unrecord(t, in, out.Source()); errors.Is(err, journal.ErrRoom) {
		return err
	}
	c.discard(t, in)
	return why
}

// unrecord records that a put that is on record has no job.
func (c *Tx) unrecord(t *tube, in *Incoming, by *reply.Source) error {
	if in.ticket.Segment == 0 {
		return nil
	}
	former := journal.Former{Segment: in.ticket.Segment, Size: journal.Size(t.name, int(in.size))}
	var err error
	if origin := by.Origin(); origin == (journal.Origin{}) {
		_, err = c.shared.log.Journal.Delete(in.id, former)
	} else { // or else it would look like the delete of a job that was put
		_, err = c.shared.log.Holds.DeleteFor(in.id, former, origin)
	}
	if !errors.Is(err, journal.ErrRoom) {
		c.ahead[in.era].Add(-1)
	}
	return err
}

// recordLarge records a put of a large body before it becomes a job, because the
// journal copies the body, and nobody is to wait for that at the shard's lock. Nobody
// else can know of the job yet. A put with tags is not recorded so: whether it becomes a
// job is known only under that lock.
func (c *Tx) recordLarge(t *tube, in *Incoming, out *reply.Output) (err error) {
	e := c.shared
	if e.log.Journal == nil || in.size < pinnedSize || in.ticket.Segment != 0 || in.keys != nil {
		return nil
	}
	var j job
	var ch change
	in.fill(&j)
	in.change(&ch)
	r := e.recordOf(&j, &ch, t.name, in.bytes)
	r.Origin = out.Source().Origin()
	in.era = e.era.Load() & 1
	c.ahead[in.era].Add(1)
	if in.ticket, err = e.log.Journal.Put(&r); err != nil {
		c.ahead[in.era].Add(-1)
	}
	return err
}

// discard frees what a put took that does not become a job.
func (c *Tx) discard(t *tube, in *Incoming) {
	sh := t.shard
	sh.freeBlock(in.body, in.size)
	c.dismiss(in.account, in.keys, counted(in.arrived(), in.size))
	sh.shared.ids.Retire(in.id)
	sh.tidier.wanted()
}

// BeginPut finds a place for a body that has not arrived. The job gets its id now,
// as in beanstalkd. In the journal it is a job when its body has come.
func (c *Tx) BeginPut(now clock.Time, cl *Client, cmd *codec.Command) *Incoming {
	t := cl.used
	in := c.keep(Incoming{pri: cmd.Pri, delay: cmd.Delay, ttr: cmd.TTR, size: cmd.Size})
	if cmd.Tags != nil {
		in.keys, in.timed = new(putKeys).set(cmd.Tags), cmd.Tags.HasExpiry
	}
	c.placeIncoming(now, t, in)
	return in
}

// placeIncoming finds the place. If there is no room, the put has no id.
func (c *Tx) placeIncoming(now clock.Time, t *tube, in *Incoming) {
	account, ok := c.admitIncoming(t, in)
	if !ok {
		return
	}
	sh := t.shard
	sh.lock(c, now)
	body, err := sh.allocBody(in.size)
	if err == nil {
		in.body, in.bytes = body, sh.bodies.Bytes(body, in.size)
		in.missing, in.account = in.bytes, account
		c.setExpiry(t, in)
		c.keepKeys(in)
	}
	sh.unlock(c)
	if err != nil {
		c.dismiss(account, in.keys, 0)
		return
	}
	in.id = c.ids.Take(0)
}

// admitIncoming is admit for a put whose body is still to come, and may never do so: it needs
// room for the body as well, and takes none for it.
func (c *Tx) admitIncoming(t *tube, in *Incoming) (account *account.Tally, ok bool) {
	e, n, body := c.shared, jobFootprint(0, in.keys), arena.Footprint(in.size)
	if !t.Account().Fits(n+body) || !e.memory.Fits(&c.quota, n+e.bounded(body)) {
		return nil, false
	}
	if e.cfg.Limits.Bodies > 0 && e.full(body) {
		e.usage.refusedBodies.Add(1)
		return nil, false
	}
	return c.admit(t, 0, in.keys)
}

// PutChunk takes a piece of a body. If there is no memory for it, what has come before is
// freed now, and the rest is discarded.
func (c *Tx) PutChunk(now clock.Time, cl *Client, in *Incoming, p []byte) {
	t := cl.used
	if in.id == 0 {
		return
	}
	if !c.shared.memory.Limited() && in.account == nil || c.admitMore(in, len(p)) {
		in.missing = in.missing[copy(in.missing, p):]
		return
	}
	sh := t.shard
	sh.lock(c, now)
	c.discard(t, in)
	sh.unlock(c)
	in.id, in.account, in.bytes, in.missing = 0, nil, nil, nil
}

// admitMore counts n bytes more of a body that is arriving, unless that would be too much.
func (c *Tx) admitMore(in *Incoming, n int) bool {
	before := in.arrived()
	bytes := counted(before+n, in.size) - counted(before, in.size)
	if bytes == 0 {
		return true
	}
	if !in.account.AdmitMore(bytes) {
		return false
	}
	if !c.shared.memory.Take(&c.quota, c.shared.bounded(bytes)) {
		in.account.Add(0, -bytes)
		return false
	}
	return true
}

// EndPut makes a job of a put whose body has come, as Put does, unless it is refused. It is called again if the journal
// has no room.
func (c *Tx) EndPut(now clock.Time, cl *Client, in *Incoming, refusal error, out *reply.Output) (id uint64, err error) {
	if in.id == 0 {
		c.freePut(in)
		return 0, errNoMemory
	}
	if refusal != nil {
		c.DiscardPut(now, cl, in)
		return 0, refusal
	}
	if !in.complete {
		in.complete, in.since = true, now
	}
	t := cl.used
	id = in.id
	recorded := c.roomFor(in, now)
	if recorded == nil {
		recorded = c.recordLarge(t, in, out)
	}
	t.shard.lock(c, now)
	if recorded != nil {
		err = c.abort(t, in, recorded, out)
	} else {
		err = c.insert(t, in, out)
	}
	t.shard.unlock(c)
	if !errors.Is(err, journal.ErrRoom) {
		c.freePut(in)
	}
	return answered(id, err)
}

// DiscardPut ends a put of a client that is not to become a job. It reports false when
// the journal has no room for that at this moment.
func (c *Tx) DiscardPut(now clock.Time, cl *Client, in *Incoming) (done bool) {
	t := cl.used
	if in.id != 0 {
		t.shard.lock(c, now)
		// If that fails for good, a restart brings the job: nobody was told that there
		// is none.
		wait := errors.Is(c.unrecord(t, in, cl.Source()), journal.ErrRoom)
		if !wait {
			c.discard(t, in)
		}
		t.shard.unlock(c)
		if wait {
			return false
		}
	}
	c.freePut(in)
	return true
}

// keep remembers a put that is not finished.
func (c *Tx) keep(in Incoming) *Incoming {
	kept := new(Incoming)
	if n := len(c.puts); n > 0 {
		kept = c.puts[n-1]
		c.puts = c.puts[:n-1]
	}
	*kept = in
	return kept
}

// maxSparePuts is how many puts that are not finished a loop has memory ready for.
const maxSparePuts = 1024

// freePut keeps the memory of a put that has ended for the next one, unless there is
// enough of that.
func (c *Tx) freePut(in *Incoming) {
	*in = Incoming{}
	if len(c.puts) < maxSparePuts {
		c.puts = append(c.puts, in)
	}
}

// OnRecord reports whether the put is on record, and no job yet.
func (in *Incoming) OnRecord() bool { return in.ticket.Segment != 0 }

// Pri is the priority of the put, and unique reports whether it has a unique key.
func (in *Incoming) Pri() (pri uint32, unique bool) {
	return in.pri, in.keys != nil && in.keys.Unique != ""
}

// Detach returns the put as it can go on in other shards, and a copy of what has arrived of its body.
func (in *Incoming) Detach() (kept *Incoming, arrived []byte) {
	x := *in
	if x.body, x.bytes, x.missing, x.account, x.complete = 0, nil, nil, nil, false; in.id != 0 {
		arrived = slices.Clone(in.bytes[:in.arrived()])
	}
	return &x, arrived
}

// AttachPut goes on with a put that was detached.
func (c *Tx) AttachPut(now clock.Time, cl *Client, kept *Incoming, arrived []byte) *Incoming {
	t := cl.used
	in := c.keep(*kept)
	if in.id != 0 {
		in.id = 0
		c.placeIncoming(now, t, in)
		c.PutChunk(now, cl, in, arrived)
	}
	return in
}

// keepKeys gives the unfinished put keys of its own if it has those of the loop.
func (c *Tx) keepKeys(in *Incoming) {
	if in.keys == &c.keys.Keys {
		in.keys = new(putKeys).copy(in.keys)
	}
}
