package engine

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/ids"
	"trellis/engine/internal/queue"
)

// incoming is a put whose body is still arriving, or whose record waits for room in
// the journal. It belongs to the session's loop. Its body lies in the shard's memory
// already and is written there as it arrives, without the shard's lock: no other part of
// the engine knows of it.
type incoming struct {
	id                    uint64 // 0 when there was no memory: the body is discarded
	pri, delay, ttr, size uint32
	body                  ref
	keys                  *journal.Keys  // nil if it has no tags
	bytes                 []byte         // the body; nil for a put whose body came at once, unless it waits for room
	missing               []byte         // the rest of bytes, which is still to be filled
	since                 Time           // when it was complete
	ticket                journal.Ticket // of a large body, which is on record before it is a job
	era                   uint32         // of that record: see Loop.ahead
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
		keys = keysOfTags(cmd.Tags)
	}
	if !s.loop.charge(cmd.Size, keys) {
		out.reply(codec.ReplyOutOfMemory)
		return Done
	}
	if !cmd.Terminated || e.draining.Load() {
		e.refund(c, cmd.Size, keys)
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
		e.refund(c, cmd.Size, keys)
		out.reply(codec.ReplyOutOfMemory)
		return Done
	}
	copy(sh.bodies.Bytes(body, cmd.Size), cmd.Body)
	sh.lastID = s.loop.ids.Take(sh.lastID)
	in := incoming{
		id: sh.lastID, pri: cmd.Pri, delay: cmd.Delay, ttr: cmd.TTR, size: cmd.Size, keys: keys, body: body, since: now,
	}
	err = s.insert(sh, &in, out)
	if errors.Is(err, journal.ErrRoom) {
		in.bytes = sh.bodies.Bytes(body, cmd.Size)
		s.keepIncoming(in)
	}
	sh.unlock(c)
	return s.inserted(err, in.id, out)
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
	r, j, err := sh.newJob(record)
	if err != nil {
		return s.abort(sh, in, err)
	}
	// The index has the job before the journal does: Migrate must find all that the journal has.
	sh.shared.ids.Put(in.id, ids.PlaceOf(sh.number, r))
	ch := in.change()
	switch {
	case in.keys != nil:
		if err = sh.attachNew(t, j, in.keys); err == nil {
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
	_, err := sh.shared.cfg.Journal.Delete(in.id, journal.Former{
		Segment: in.ticket.Segment, Size: journal.Size(s.used.name, int(in.size)),
	})
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
	sh.shared.refund(sh.by, in.size, in.keys)
	sh.shared.ids.Retire(in.id)
	sh.tidier.wanted()
}

// putBegin takes room for a body that has not arrived. The job gets its id now,
// as in beanstalkd.
func (s *Session) putBegin(now Time, cmd *codec.Command) {
	s.becomeProducer()
	l := s.loop
	s.keepIncoming(incoming{pri: cmd.Pri, delay: cmd.Delay, ttr: cmd.TTR, size: cmd.Size})
	in := s.incoming
	if cmd.Tags != nil {
		in.keys = keysOfTags(cmd.Tags)
	}
	if !l.charge(in.size, in.keys) {
		return
	}
	sh := s.used.shard
	sh.lock(&l.locks, now)
	body, err := sh.bodies.Alloc(cmd.Size)
	if err == nil {
		in.body, in.bytes = body, sh.bodies.Bytes(body, cmd.Size)
		in.missing = in.bytes
	}
	sh.unlock(&l.locks)
	if err != nil {
		l.engine.refund(&l.locks, in.size, in.keys)
		return
	}
	in.id = l.ids.Take(0)
}

func (s *Session) putChunk(p []byte) {
	in := s.incoming
	if in.id != 0 {
		in.missing = in.missing[copy(in.missing, p):]
	}
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

// keysOfTags are the keys of a put's job.
func keysOfTags(t *codec.Tags) *journal.Keys {
	return &journal.Keys{
		Unique: string(t.Unique), Seconds: t.Seconds,
		Limited: string(t.Limited), Limit: t.Limit,
	}
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
	ready: "READY", reserved: "RESERVED", buried: "BURIED", delayed: "DELAYED", tombstone: "DELETED",
}
