package engine

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/ids"
	"trellis/engine/internal/queue"
)

// incoming is a put whose body is still arriving, or whose record waits for room in
// the journal. It belongs to the session's loop. Its body has its place in the shard's memory
// already and is written there as it arrives, without the shard's lock: no other part of
// the engine knows of it. The place costs only addresses before it is written to, so the
// body is counted as it arrives.
type incoming struct {
	id                    uint64 // 0 when there is no memory: the body is discarded
	pri, delay, ttr, size uint32
	body                  ref
	keys                  *journal.Keys  // nil if it has no tags
	bytes                 []byte         // the body; nil for a put whose body came at once, unless it waits for room
	missing               []byte         // the rest of bytes, which is still to be filled
	account               *tally         // that it was admitted to; nil for none
	timed                 bool           // it is known when it expires, or that it does not
	denied                bool           // its client has no right to it: the body is discarded
	since                 Time           // when it was complete
	ticket                journal.Ticket // of a large body, which is on record before it is a job
	era                   uint32         // of that record: see Loop.ahead
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
func (in *incoming) arrived() int { return int(in.size) - len(in.missing) }

// footprint is the memory that it is counted for.
func (in *incoming) footprint() int64 {
	return jobFootprint(0, in.keys) + counted(in.arrived(), in.size)
}

// job is the record of the job that it becomes, which stands nowhere yet.
func (in *incoming) job() job {
	return job{
		Links: queue.Links{ID: in.id}, created: in.since, ttr: max(in.ttr, 1), size: in.size, body: in.body,
	}
}

// change is what becomes of that job.
func (in *incoming) change() change {
	ch := change{to: ready, pri: in.pri}
	if in.delay > 0 {
		ch.to, ch.at = delayed, in.since+seconds(in.delay)
		ch.counters.delay = in.delay
	}
	return ch
}

// put accepts a job whose whole body is in hand.
func (s *Session) put(now Time, cmd *codec.Command, out *Output) Outcome {
	e, c := s.loop.engine, &s.loop.locks
	s.becomeProducer()
	var keys *journal.Keys
	if cmd.Tags != nil {
		keys = s.loop.putKeys.set(cmd.Tags)
	}
	account, ok := s.admit(cmd.Size, keys)
	if !ok {
		out.reply(codec.ReplyOutOfMemory)
		return Done
	}
	if !cmd.Terminated || e.draining.Load() {
		e.dismiss(c, account, jobFootprint(cmd.Size, keys))
		e.ids.Retire(s.loop.ids.Take(0))
		if !cmd.Terminated {
			out.reply(codec.ReplyExpectedCRLF)
		} else {
			out.reply(codec.ReplyDraining)
		}
		return Done
	}
	sh := s.used.shard
	sh.lock(c, now)
	body, err := sh.bodies.Alloc(cmd.Size)
	if err != nil {
		sh.unlock(c)
		e.dismiss(c, account, jobFootprint(cmd.Size, keys))
		out.reply(codec.ReplyOutOfMemory)
		return Done
	}
	copy(sh.bodies.Bytes(body, cmd.Size), cmd.Body)
	sh.lastID = s.loop.ids.Take(sh.lastID)
	in := incoming{
		id: sh.lastID, pri: cmd.Pri, delay: cmd.Delay, ttr: cmd.TTR, size: cmd.Size, keys: keys, body: body, account: account, since: now,
	}
	if s.used.policy != nil {
		in.timed = cmd.Tags != nil && cmd.Tags.HasExpiry
		s.setExpiry(&in)
	}
	err = s.insert(sh, &in, out)
	if errors.Is(err, journal.ErrRoom) {
		in.bytes = sh.bodies.Bytes(body, cmd.Size)
		s.keepIncoming(in)
		s.keepKeys()
	}
	sh.unlock(c)
	return s.inserted(err, in.id, out)
}

// setExpiry gives a put without the tag exp the expiry that the setting of its tube says. The
// shard is locked. What it takes is counted without asking. The keys of
// the put are the loop's then.
func (s *Session) setExpiry(in *incoming) {
	p := s.used.policy
	if p == nil || p.Expire == 0 || in.timed || !s.loop.engine.recordsAll() {
		return
	}
	before, keys := keysFootprint(in.keys), &s.loop.putKeys
	in.keys, in.timed = keys.copy(in.keys), true
	keys.terms.Expires, keys.Terms = p.Expire, &keys.terms
	more := keysFootprint(in.keys) - before
	s.loop.engine.countBytes(&s.loop.locks, more)
	in.account.add(0, more)
}

// admit counts a put with a body of size bytes and these keys, which may be nil, unless it
// would be too much for the server or for the account of the tube, or others could not read
// its record. It returns that account.
func (s *Session) admit(size uint32, keys *journal.Keys) (account *tally, ok bool) {
	account = s.used.account.Load()
	if keys == nil && account == nil {
		return nil, s.loop.charge(size, nil)
	}
	if keys != nil && keys.Terms != nil && !s.loop.engine.recordsAll() {
		return nil, false
	}
	if account != nil && !account.admit(jobFootprint(size, keys)) {
		return nil, false
	}
	if !s.loop.charge(size, keys) {
		account.dismiss(jobFootprint(size, keys))
		return nil, false
	}
	return account, true
}

// insert makes a job of a put whose body lies in the shard, records it if it is not on
// record, and queues it. If that cannot be, it frees all that the put took, unless the
// journal will soon have room.
func (s *Session) insert(sh *shard, in *incoming, out *Output) error {
	t := s.used
	if in.keys != nil {
		s.loop.Spend(keyedCost)
		if err := s.findDuplicate(sh, in, out); err != nil {
			return s.abort(sh, in, err)
		}
	}
	record := in.job()
	record.tube = t.index
	r, j, err := sh.newJob(&record)
	if err != nil {
		return s.abort(sh, in, err)
	}
	// The index has the job before the journal does: Migrate must find all that the journal has.
	sh.shared.ids.Put(in.id, ids.PlaceOf(sh.number, r))
	ch := in.change()
	switch {
	case in.keys != nil:
		var k *keyed
		if k, err = sh.attachNew(t, j, in.keys); err == nil {
			if x := k.terms; x != nil && x.After != "" && sh.holdBack(j.ID, x, false) {
				ch.to, ch.at = held, MaxTime
			}
			err = sh.change(r, j, &ch, out)
		}
	case in.ticket.Segment == 0:
		err = sh.change(r, j, &ch, out)
	default:
		if err = sh.provide(j, &ch); err == nil {
			sh.recordedPut(j, in.ticket, out)
			sh.apply(r, j, &ch)
			s.loop.ahead[in.era].Add(-1)
		}
	}
	if err != nil {
		sh.freeRecord(r, j)
		sh.shared.ids.Put(in.id, 0)
		return s.abort(sh, in, err)
	}
	t.admitted(in.account, jobFootprint(in.size, in.keys))
	t.puts++
	sh.totals.puts++
	sh.dispatch(t)
	return nil
}

// abort ends a put that cannot become a job. It frees what the put took, and returns why.
// If the reason is that the journal has no room at this moment, it frees nothing: the put
// is tried again.
func (s *Session) abort(sh *shard, in *incoming, why error) error {
	if errors.Is(why, journal.ErrRoom) {
		return why
	}
	if err := s.unrecord(sh, in); errors.Is(err, journal.ErrRoom) {
		return err
	}
	s.discard(sh, in)
	return why
}

// unrecord records that a put that is on record has no job.
func (s *Session) unrecord(sh *shard, in *incoming) error {
	if in.ticket.Segment == 0 {
		return nil
	}
	former := journal.Former{Segment: in.ticket.Segment, Size: journal.Size(s.used.name, int(in.size))}
	var err error
	if by := s.origin(); by == (journal.Origin{}) {
		_, err = sh.shared.cfg.Journal.Delete(in.id, former)
	} else { // or else it would look like the delete of a job that was put
		_, err = sh.shared.holds.DeleteFor(in.id, former, by)
	}
	if !errors.Is(err, journal.ErrRoom) {
		s.loop.ahead[in.era].Add(-1)
	}
	return err
}

// inserted ends a put.
func (s *Session) inserted(err error, id uint64, out *Output) Outcome {
	switch {
	case err == nil:
		out.Buf = codec.AppendInserted(out.Buf, id)
	case errors.Is(err, errDuplicate): // answered
	case errors.Is(err, journal.ErrRoom):
		return s.awaitRoom(putting{})
	default:
		out.refuse(err)
	}
	s.freeIncoming()
	return Done
}

// putting is a put whose record waits for room in the journal.
type putting struct{}

func (putting) turn(s *Session, now Time, out *Output) Outcome {
	sh, in := s.used.shard, s.incoming
	recorded := s.recordLarge(in)
	sh.lock(&s.loop.locks, now)
	var err error
	if recorded != nil {
		err = s.abort(sh, in, recorded)
	} else {
		err = s.insert(sh, in, out)
	}
	sh.unlock(&s.loop.locks)
	return s.inserted(err, in.id, out)
}

// recordLarge records a put of a large body before it becomes a job, because the
// journal copies the body, and nobody is to wait for that at the shard's lock. Nobody
// else can know of the job yet. A put with tags is not recorded so: whether it becomes a
// job is known only under that lock.
func (s *Session) recordLarge(in *incoming) (err error) {
	e := s.loop.engine
	if e.cfg.Journal == nil || in.size < pinnedSize || in.ticket.Segment != 0 || in.keys != nil {
		return nil
	}
	j, ch := in.job(), in.change()
	r := e.recordOf(&j, &ch, s.used.name, in.bytes)
	r.Origin = s.origin()
	in.era = e.era.Load() & 1
	s.loop.ahead[in.era].Add(1)
	if in.ticket, err = e.cfg.Journal.Put(&r); err != nil {
		s.loop.ahead[in.era].Add(-1)
	}
	return err
}

// discard frees what a put took that does not become a job.
func (s *Session) discard(sh *shard, in *incoming) {
	sh.bodies.Free(in.body, in.size)
	sh.shared.dismiss(sh.by, in.account, in.footprint())
	sh.shared.ids.Retire(in.id)
	sh.tidier.wanted()
}

// putBegin finds a place for a body that has not arrived. The job gets its id now,
// as in beanstalkd.
func (s *Session) putBegin(now Time, cmd *codec.Command) {
	s.becomeProducer()
	s.keepIncoming(incoming{pri: cmd.Pri, delay: cmd.Delay, ttr: cmd.TTR, size: cmd.Size})
	if cmd.Tags != nil {
		s.incoming.keys, s.incoming.timed = new(putKeys).set(cmd.Tags), cmd.Tags.HasExpiry
	}
	s.placeIncoming(now)
}

// placeIncoming finds the place. If there is no room, the put has no id.
func (s *Session) placeIncoming(now Time) {
	l, in := s.loop, s.incoming
	account, ok := s.admitIncoming(in)
	if !ok {
		return
	}
	sh := s.used.shard
	sh.lock(&l.locks, now)
	body, err := sh.bodies.Alloc(in.size)
	if err == nil {
		in.body, in.bytes = body, sh.bodies.Bytes(body, in.size)
		in.missing, in.account = in.bytes, account
		s.setExpiry(in)
		s.keepKeys()
	}
	sh.unlock(&l.locks)
	if err != nil {
		l.engine.dismiss(&l.locks, account, jobFootprint(0, in.keys))
		return
	}
	in.id = l.ids.Take(0)
}

// admitIncoming is admit for a put whose body is still to come, and may never do so: it needs
// room for the body as well, and takes none for it.
func (s *Session) admitIncoming(in *incoming) (account *tally, ok bool) {
	all := jobFootprint(in.size, in.keys)
	if !s.used.account.Load().fits(all) || !s.loop.fits(all) {
		return nil, false
	}
	return s.admit(0, in.keys)
}

// putChunk takes a piece of a body. If there is no memory for it, what has come before is
// freed now, and the rest is discarded.
func (s *Session) putChunk(now Time, p []byte) {
	in, c := s.incoming, &s.loop.locks
	if in.id == 0 {
		return
	}
	if s.loop.engine.cfg.Limits.Memory == 0 && in.account == nil || s.admitMore(in, len(p)) {
		in.missing = in.missing[copy(in.missing, p):]
		return
	}
	sh := s.used.shard
	sh.lock(c, now)
	s.discard(sh, in)
	sh.unlock(c)
	in.id, in.account, in.bytes, in.missing = 0, nil, nil, nil
}

// admitMore counts n bytes more of a body that is arriving, unless that would be too much.
func (s *Session) admitMore(in *incoming, n int) bool {
	before := in.arrived()
	bytes := counted(before+n, in.size) - counted(before, in.size)
	if bytes == 0 {
		return true
	}
	if !in.account.admitMore(bytes) {
		return false
	}
	if limit := s.loop.engine.cfg.Limits.Memory; limit != 0 && !s.loop.take(bytes, limit) {
		in.account.add(0, -bytes)
		return false
	}
	return true
}

func (s *Session) putEnd(now Time, terminated bool, out *Output) Outcome {
	switch {
	case s.incoming.id == 0:
		out.reply(codec.ReplyOutOfMemory)
	case !terminated:
		out.reply(codec.ReplyExpectedCRLF)
		s.discardIncoming(now)
	case s.loop.engine.draining.Load():
		out.reply(codec.ReplyDraining)
		s.discardIncoming(now)
	default:
		s.incoming.since = now
		return putting{}.turn(s, now, out)
	}
	s.freeIncoming()
	return Done
}

// discardIncoming ends a put that is not to become a job. It reports false when the journal
// has no room for that at this moment.
func (s *Session) discardIncoming(now Time) (done bool) {
	in := s.incoming
	if in == nil {
		return true
	}
	if in.id != 0 {
		sh := s.used.shard
		sh.lock(&s.loop.locks, now)
		// If that fails for good, a restart brings the job: nobody was told that there
		// is none.
		wait := errors.Is(s.unrecord(sh, in), journal.ErrRoom)
		if !wait {
			s.discard(sh, in)
		}
		sh.unlock(&s.loop.locks)
		if wait {
			return false
		}
	}
	s.freeIncoming()
	return true
}

// keepIncoming remembers a put that is not finished.
func (s *Session) keepIncoming(in incoming) {
	l := s.loop
	if n := len(l.spareIncoming); n > 0 {
		s.incoming = l.spareIncoming[n-1]
		l.spareIncoming = l.spareIncoming[:n-1]
	} else {
		s.incoming = new(incoming)
	}
	*s.incoming = in
}

// keepKeys gives the unfinished put keys of its own if it has those of the loop.
func (s *Session) keepKeys() {
	if in := s.incoming; in.keys == &s.loop.putKeys.Keys {
		in.keys = new(putKeys).copy(in.keys)
	}
}

// freeIncoming keeps the memory of a put that has ended for the next one, unless there is
// enough of that.
func (s *Session) freeIncoming() {
	if in := s.incoming; in != nil {
		*in = incoming{}
		if l := s.loop; len(l.spareIncoming) < maxQueueCap {
			l.spareIncoming = append(l.spareIncoming, in)
		}
		s.incoming = nil
	}
}

func (s *Session) becomeProducer() {
	if s.flags&isProducer == 0 {
		s.flags |= isProducer
		s.loop.counts.producers.Add(1)
	}
}

// putKeys are the keys and terms of a put in one piece of memory. One that is done at once has
// those of its loop, of which the job gets a copy.
type putKeys struct {
	journal.Keys
	terms journal.Terms
}

// set makes them those of tags. It returns nil if there are none.
func (k *putKeys) set(t *codec.Tags) *journal.Keys {
	k.Keys = journal.Keys{
		Unique: string(t.Unique), Seconds: t.Seconds,
		Limited: string(t.Limited), Limit: t.Limit,
	}
	k.terms = journal.Terms{
		Fair: string(t.Fair), Group: string(t.Group), After: string(t.After), Settled: t.Settled, Expires: t.Expires,
	}
	if k.terms != (journal.Terms{}) {
		k.Terms = &k.terms
	}
	if k.Keys == (journal.Keys{}) {
		return nil
	}
	return &k.Keys
}

// copy makes them those of keys, which may be nil, or be these.
func (k *putKeys) copy(keys *journal.Keys) *journal.Keys {
	if keys == nil {
		*k = putKeys{}
	} else if k.Keys = *keys; k.Terms != nil {
		k.terms, k.Terms = *k.Terms, &k.terms
	} else {
		k.terms = journal.Terms{}
	}
	return &k.Keys
}

// errDuplicate tells that a put was answered because its unique key has a holder.
var errDuplicate = errors.New("the unique key has a holder")

// findDuplicate answers a put whose unique key has a holder, and gives that the put's
// priority if it is more urgent. It returns errDuplicate then, or why the priority could not
// be changed, and nil if the key is free.
func (s *Session) findDuplicate(sh *shard, in *incoming, out *Output) error {
	k := sh.holder(s.used.name, in.keys.Unique)
	if k == nil {
		return nil
	}
	r, j := sh.find(k.id)
	if j.state == tombstone && j.at() <= sh.now {
		sh.loseKey(k)
		return nil
	}
	out.showsState()
	out.dependOn(sh.dependsOn(sh.now))
	if j.state != tombstone && in.pri < j.pri {
		if err := sh.raise(r, j, in.pri, out); err != nil {
			return err
		}
		out.Buf = codec.AppendRaised(out.Buf, j.ID, duplicateStates[j.state], in.pri)
	} else {
		out.Buf = codec.AppendDuplicate(out.Buf, j.ID, duplicateStates[j.state])
	}
	sh.totals.duplicates++
	return errDuplicate
}

// duplicateStates are the words for a holder's state.
var duplicateStates = [numStates]string{
	ready: "READY", reserved: "RESERVED", buried: "BURIED", delayed: "DELAYED", held: "DELAYED", tombstone: "DELETED",
}
