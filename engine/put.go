package engine

import (
	"errors"

	"trellis/codec"
)

var errTooManyJobs = errors.New("the shard has no more names for jobs")

// incoming is a put whose body is still arriving. It belongs to the session's
// loop. Its body lies in the shard's memory already and is written there as it
// arrives, without the shard's lock: no other part of the engine knows of it.
type incoming struct {
	id                    uint64 // 0 when there was no memory: the body is dropped
	pri, delay, ttr, size uint32
	body                  ref
	room                  []byte // what is still to be filled of the body
}

// put accepts a job whose whole body is in hand.
func (s *Session) put(now Time, cmd *codec.Command, out *Output) {
	e := s.loop.engine
	s.becomeProducer()
	if !cmd.Terminated || e.draining.Load() {
		e.ids.retire(e.lastID.Add(1))
		if !cmd.Terminated {
			out.reply(codec.ReplyExpectedCRLF)
		} else {
			out.reply(codec.ReplyDraining)
		}
		return
	}
	if !e.charge(cmd.Size) {
		out.reply(codec.ReplyOutOfMemory)
		return
	}
	c := &s.loop.caller
	sh := s.used.shard
	sh.lock(c, now)
	body, err := sh.bodies.Alloc(cmd.Size)
	if err != nil {
		sh.unlock(c)
		e.refund(cmd.Size)
		out.reply(codec.ReplyOutOfMemory)
		return
	}
	copy(sh.bodies.Bytes(body, cmd.Size), cmd.Body)
	id := e.lastID.Add(1)
	s.insert(sh, now, &incoming{id: id, pri: cmd.Pri, delay: cmd.Delay, ttr: cmd.TTR, size: cmd.Size, body: body}, out)
	sh.unlock(c)
}

// insert makes a job of a put whose body lies in the shard, records it and
// queues it. If that cannot be, it takes everything back.
func (s *Session) insert(sh *shard, now Time, in *incoming, out *Output) {
	r, err := sh.newJob(s.used, in)
	if err != nil {
		s.discard(sh, in)
		out.reply(codec.ReplyOutOfMemory)
		return
	}
	j := sh.job(r)
	j.created = now
	var due Time
	if in.delay > 0 {
		due = now + seconds(in.delay)
	}
	// Before the journal has it: what it has, Migrate must find.
	sh.engine.ids.put(in.id, placeOf(sh.number, r))
	if err := sh.recordPut(j, due, out); err != nil {
		sh.freeJob(r, j)
		s.discard(sh, in)
		out.refuse(err)
		return
	}
	s.used.puts++
	sh.counts.puts++
	if due != 0 {
		sh.makeDelayed(r, j, due)
	} else {
		sh.makeReady(r, j, now)
	}
	out.Buf = codec.AppendInserted(out.Buf, in.id)
}

// newJob makes the record of a job that stands nowhere yet.
func (sh *shard) newJob(t *tube, in *incoming) (ref, error) {
	r, err := sh.jobs.Alloc()
	if err != nil {
		return 0, err
	}
	j := sh.job(r)
	*j = job{
		id: in.id, pri: in.pri, ttr: max(in.ttr, 1),
		size: in.size, body: in.body, tube: t.index,
	}
	if r > maxJobRef {
		sh.freeJob(r, j)
		return 0, errTooManyJobs
	}
	if in.delay > 0 {
		n, err := sh.tallyOf(j)
		if err != nil {
			sh.freeJob(r, j)
			return 0, err
		}
		n.delay = in.delay
	}
	return r, nil
}

// freeJob frees a job's record and counters, but not its body.
func (sh *shard) freeJob(r ref, j *job) {
	if j.tally != 0 {
		sh.tallies.Free(j.tally)
	}
	sh.jobs.Free(r)
}

// discard frees what a put took whose job will not be.
func (s *Session) discard(sh *shard, in *incoming) {
	sh.bodies.Free(in.body, in.size)
	sh.engine.refund(in.size)
	sh.engine.ids.retire(in.id)
	sh.tidier.wanted()
}

// putBegin takes room for a body that has not arrived. The job gets its id now,
// as in beanstalkd.
func (s *Session) putBegin(now Time, cmd *codec.Command) {
	s.becomeProducer()
	l := s.loop
	in := new(incoming)
	if n := len(l.freeIncoming); n > 0 {
		in = l.freeIncoming[n-1]
		l.freeIncoming = l.freeIncoming[:n-1]
	}
	*in = incoming{pri: cmd.Pri, delay: cmd.Delay, ttr: cmd.TTR, size: cmd.Size}
	s.incoming = in
	if !l.engine.charge(cmd.Size) {
		return
	}
	sh := s.used.shard
	sh.lock(&l.caller, now)
	body, err := sh.bodies.Alloc(cmd.Size)
	if err == nil {
		in.body, in.room = body, sh.bodies.Bytes(body, cmd.Size)
	}
	sh.unlock(&l.caller)
	if err != nil {
		l.engine.refund(cmd.Size)
		return
	}
	in.id = l.engine.lastID.Add(1)
}

func (s *Session) putChunk(p []byte) {
	in := s.incoming
	if in.id != 0 {
		in.room = in.room[copy(in.room, p):]
	}
}

func (s *Session) putEnd(now Time, terminated bool, out *Output) {
	l, in := s.loop, s.incoming
	switch {
	case in.id == 0:
		out.reply(codec.ReplyOutOfMemory)
	case !terminated:
		out.reply(codec.ReplyExpectedCRLF)
		s.dropIncoming(now)
	case l.engine.draining.Load():
		out.reply(codec.ReplyDraining)
		s.dropIncoming(now)
	default:
		sh := s.used.shard
		sh.lock(&l.caller, now)
		s.insert(sh, now, in, out)
		sh.unlock(&l.caller)
	}
	s.forgetIncoming()
}

// dropIncoming ends a put whose job will not be.
func (s *Session) dropIncoming(now Time) {
	in := s.incoming
	if in == nil {
		return
	}
	if in.id != 0 {
		sh := s.used.shard
		sh.lock(&s.loop.caller, now)
		s.discard(sh, in)
		sh.unlock(&s.loop.caller)
	}
	s.forgetIncoming()
}

// forgetIncoming keeps the record of a put that has ended for the next one.
func (s *Session) forgetIncoming() {
	if in := s.incoming; in != nil {
		*in = incoming{}
		s.loop.freeIncoming = append(s.loop.freeIncoming, in)
		s.incoming = nil
	}
}

func (s *Session) becomeProducer() {
	if s.flags&isProducer == 0 {
		s.flags |= isProducer
		s.loop.counts.producers.Add(1)
	}
}
