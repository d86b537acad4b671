package engine

import (
	"trellis/binlog/journal"
	"trellis/codec"
)

// held locks the shard of a job and returns the job if the session has
// reserved it. Otherwise it appends NOT_FOUND, holds no lock, and sh is nil.
func (s *Session) held(now Time, id uint64, out *Output) (sh *shard, r ref, j *job) {
	c := &s.loop.caller
	sh, r, j = s.loop.engine.lockJob(c, id, now)
	if sh != nil && !sh.heldBy(s, j) {
		sh.unlock(c)
		sh = nil
	}
	if sh == nil {
		out.reply(codec.ReplyNotFound)
	}
	return sh, r, j
}

func (s *Session) delete(now Time, id uint64, out *Output) {
	c := &s.loop.caller
	sh, r, j := s.loop.engine.lockJob(c, id, now)
	if sh == nil {
		out.reply(codec.ReplyNotFound)
		return
	}
	if j.state == reserved && !sh.heldBy(s, j) {
		sh.unlock(c)
		out.reply(codec.ReplyNotFound)
		return
	}
	if err := sh.recordDelete(j, out); err != nil {
		sh.unlock(c)
		out.refuse(err)
		return
	}
	sh.tubes[j.tube].deletes++
	sh.takeOut(j)
	sh.erase(r, j)
	sh.unlock(c)
	out.reply(codec.ReplyDeleted)
}

func (s *Session) release(now Time, cmd *codec.Command, out *Output) {
	sh, r, j := s.held(now, cmd.ID, out)
	if sh == nil {
		return
	}
	due := now + seconds(cmd.Delay)
	if sh.journaled() {
		r := sh.describe(j)
		r.Pri, r.Delay = cmd.Pri, cmd.Delay
		r.Releases++
		if cmd.Delay > 0 {
			r.State, r.Due = journal.Delayed, sh.engine.wall(due)
		}
		if err := sh.recordUpdate(r, out); err != nil {
			out.refuse(err)
			sh.unlock(&s.loop.caller)
			return
		}
	}
	sh.takeOut(j)
	n := sh.tallies.At(j.tally)
	n.releases++
	j.pri, n.delay = cmd.Pri, cmd.Delay
	if cmd.Delay > 0 {
		sh.makeDelayed(r, j, due)
	} else {
		sh.makeReady(r, j, now)
	}
	out.reply(codec.ReplyReleased)
	sh.unlock(&s.loop.caller)
}

func (s *Session) bury(now Time, cmd *codec.Command, out *Output) {
	sh, r, j := s.held(now, cmd.ID, out)
	if sh == nil {
		return
	}
	if sh.journaled() {
		r := sh.describe(j)
		r.State, r.Pri, r.BuryOrder = journal.Buried, cmd.Pri, sh.journal.buries+1
		r.Buries++
		if err := sh.recordUpdate(r, out); err != nil {
			out.refuse(err)
			sh.unlock(&s.loop.caller)
			return
		}
	}
	sh.takeOut(j)
	sh.tallies.At(j.tally).buries++
	j.pri = cmd.Pri
	sh.journal.buries++
	j.at = Time(sh.journal.buries)
	sh.tubes[j.tube].buried.append(sh, r, j)
	out.reply(codec.ReplyBuried)
	sh.unlock(&s.loop.caller)
}

func (s *Session) touch(now Time, id uint64, out *Output) {
	sh, r, j := s.held(now, id, out)
	if sh == nil {
		return
	}
	sh.touch(r, j, now)
	sh.unlock(&s.loop.caller)
	out.reply(codec.ReplyTouched)
}

const (
	// kickSlice is how many jobs a kick moves before it lets others have the shard.
	kickSlice = 512
	// kickTurn is how many it moves before it lets others have the loop.
	kickTurn = 8 * kickSlice
)

// kicking is what a kick of many jobs has still to do.
type kicking struct {
	of     state
	kicked int
	most   int
	pos    journal.Pos // in the journal that the reply depends on
}

// kick moves up to bound buried jobs of the used tube to its ready queue, or,
// if none is buried, delayed ones. Jobs that are buried or delayed after it began do not
// make it longer.
func (s *Session) kick(now Time, bound uint32, out *Output) Outcome {
	t := s.used
	t.shard.lock(&s.loop.caller, now)
	k := kicking{of: delayed, most: len(t.delayed)}
	if t.buried.count > 0 {
		k.of, k.most = buried, t.buried.count
	}
	t.shard.unlock(&s.loop.caller)
	k.most = int(min(int64(bound), int64(k.most)))
	return s.goOnKicking(now, k, out)
}

// goOnKicking does a turn of a kick. Until the last one it returns Yield, and
// keeps in the session what is left.
func (s *Session) goOnKicking(now Time, k kicking, out *Output) Outcome {
	c := &s.loop.caller
	t := s.used
	sh := t.shard
	turn := k.kicked + kickTurn
	sh.lock(c, now)
	for k.kicked < k.most {
		r := t.buried.head
		if k.of == delayed {
			r = 0
			if len(t.delayed) > 0 {
				r = t.delayed[0].ref
			}
		}
		if r == 0 {
			break
		}
		if err := sh.kick(r, sh.job(r), now, out); err != nil {
			if k.kicked == 0 {
				sh.unlock(c)
				out.refuse(err)
				return Done
			}
			break
		}
		k.kicked++
		if k.kicked == turn && k.kicked < k.most {
			sh.unlock(c)
			k.pos = max(k.pos, out.Pos)
			w := s.waiter()
			w.kick = k
			return Yield
		}
		if k.kicked%kickSlice == 0 {
			sh.unlock(c)
			sh.lock(c, now)
		}
	}
	sh.unlock(c)
	out.dependOn(k.pos)
	out.Buf = codec.AppendKicked(out.Buf, uint64(k.kicked))
	return Done
}

// kick makes a buried or delayed job ready.
func (sh *shard) kick(r ref, j *job, now Time, out *Output) error {
	n, err := sh.tallyOf(j)
	if err != nil {
		return err
	}
	if sh.journaled() {
		r := sh.describeReady(j)
		r.Kicks++
		if err := sh.recordUpdate(r, out); err != nil {
			return err
		}
	}
	n.kicks++
	sh.takeOut(j)
	sh.makeReady(r, j, now)
	return nil
}

func (s *Session) kickJob(now Time, id uint64, out *Output) {
	c := &s.loop.caller
	sh, r, j := s.loop.engine.lockJob(c, id, now)
	if sh == nil {
		out.reply(codec.ReplyNotFound)
		return
	}
	if j.state != buried && j.state != delayed {
		out.reply(codec.ReplyNotFound)
		sh.unlock(c)
		return
	}
	if err := sh.kick(r, j, now, out); err != nil {
		out.refuse(err)
		sh.unlock(c)
		return
	}
	out.reply(codec.ReplyKicked)
	sh.unlock(c)
}

func (s *Session) peek(now Time, id uint64, out *Output) {
	c := &s.loop.caller
	sh, _, j := s.loop.engine.lockJob(c, id, now)
	if sh == nil {
		out.reply(codec.ReplyNotFound)
		return
	}
	out.dependOn(sh.unsettled(sh.now))
	out.Buf = codec.AppendFound(out.Buf, id, sh.body(j))
	sh.unlock(c)
}

// peekFirst shows the first job of the used tube in one of its queues.
func (s *Session) peekFirst(now Time, op codec.Op, out *Output) {
	c := &s.loop.caller
	t := s.used
	sh := t.shard
	sh.lock(c, now)
	defer sh.unlock(c)
	var r ref
	switch {
	case op == codec.OpPeekReady && t.ready.count > 0:
		r, _ = t.ready.first(sh)
	case op == codec.OpPeekDelayed && len(t.delayed) > 0:
		r = t.delayed[0].ref
	case op == codec.OpPeekBuried:
		r = t.buried.head
	}
	if r == 0 {
		out.reply(codec.ReplyNotFound)
		return
	}
	j := sh.job(r)
	out.dependOn(sh.unsettled(sh.now))
	out.Buf = codec.AppendFound(out.Buf, j.id, sh.body(j))
}
