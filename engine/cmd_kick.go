package engine

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
)

// kickSlice is how many steps a kick takes before it lets others have the shard.
const kickSlice = 256

// kicking is a kick of jobs of one tube. A tube that nobody uses may disappear
// meanwhile, and come again.
type kicking struct {
	shard  *shard
	tube   string
	from   state
	kicked int
	most   int
	pos    journal.Pos // in the journal that the reply depends on
}

// kick moves up to bound buried jobs of the used tube to its ready queue, or,
// if none is buried, delayed ones. Jobs that are buried or delayed after it began do not
// make it longer.
func (s *Session) kick(now Time, bound uint32, out *Output) Outcome {
	t := s.used
	t.shard.lock(&s.loop.locks, now)
	k := kickOf(t, bound)
	t.shard.unlock(&s.loop.locks)
	return k.turn(s, now, out)
}

// kickTube is kick for the tube that the command names.
func (s *Session) kickTube(now Time, cmd *codec.Command, out *Output) Outcome {
	sh, t := s.lockTube(now, cmd.Tube, out)
	if t == nil {
		return Done
	}
	k := kickOf(t, cmd.Bound)
	sh.unlock(&s.loop.locks)
	return k.turn(s, now, out)
}

// kickOf is a kick of at most bound jobs of a tube, whose shard is locked.
func kickOf(t *tube, bound uint32) kicking {
	k := kicking{shard: t.shard, tube: t.name, from: delayed, most: t.delayed.Len()}
	if t.buried.Len() > 0 {
		k.from, k.most = buried, t.buried.Len()
	}
	k.most = int(min(int64(bound), int64(k.most)))
	return k
}

// turn kicks as many jobs as the round's budget allows.
func (k kicking) turn(s *Session, now Time, out *Output) Outcome {
	l, sh := s.loop, k.shard
	var changes Output // out depends on them no sooner than it has the reply
	for k.kicked < k.most {
		sh.lock(&l.locks, now)
		n, steps, err := k.slice(sh, &changes)
		sh.unlock(&l.locks)
		k.kicked += n
		k.pos = max(k.pos, changes.Pos)
		left := l.Spend(steps + lockSteps)
		switch {
		case errors.Is(err, journal.ErrRoom):
			return s.awaitRoom(k)
		case err != nil && k.kicked == 0:
			out.refuse(err)
			return Done
		case err != nil || n == 0:
			k.most = k.kicked // the others have gone, or stay where they are
		}
		if !left && k.kicked < k.most {
			return s.yield(k)
		}
	}
	out.dependOn(k.pos)
	if k.kicked == 0 {
		out.dependOn(sh.vanished())
	}
	out.Buf = codec.AppendKicked(out.Buf, uint64(k.kicked))
	return Done
}

// slice kicks some jobs under the shard's lock.
func (k kicking) slice(sh *shard, out *Output) (n, steps int, err error) {
	t := sh.byName[k.tube]
	if t == nil {
		return 0, 0, nil
	}
	begin := *sh.by.budget // of which the jobs' keys may take some
	for n < k.most-k.kicked && steps+begin-*sh.by.budget < kickSlice {
		r := t.buried.First(sh.table)
		if k.from == delayed {
			r = 0
			if t.delayed.Len() > 0 {
				r = t.delayed.First().Ref
			}
		}
		if r == 0 {
			break
		}
		j := sh.job(r)
		if err := sh.kick(r, j, out); err != nil {
			return n, steps, err
		}
		n++
		steps += j.steps()
	}
	return n, steps, nil
}

// kick makes a buried or delayed job ready.
func (sh *shard) kick(r ref, j *job, out *Output) error {
	ch := sh.present(j)
	ch.to = ready
	ch.counters.kicks++
	ch.counters.attempts = 0
	err := sh.change(r, j, &ch, out)
	sh.dispatch(sh.tubes[j.tube])
	return err
}

func (s *Session) kickJob(now Time, cmd *codec.Command, out *Output) Outcome {
	c := &s.loop.locks
	sh, r, j := s.loop.engine.lockJob(c, cmd.ID, now)
	if sh == nil {
		s.notFound(nil, out, codec.ReplyNotFound)
		return Done
	}
	if j.state != buried && j.state != delayed {
		sh.unlock(c)
		s.notFound(sh, out, codec.ReplyNotFound)
		return Done
	}
	err := sh.kick(r, j, out)
	return s.changed(sh, err, cmd, out, codec.ReplyKicked)
}
