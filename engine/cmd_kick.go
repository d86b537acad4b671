package engine

import "trellis/codec"

// kickSlice is what a slice of a kick costs.
const kickSlice = 256

// kick moves up to bound buried jobs of the used tube to its ready queue, or,
// if none is buried, delayed ones. Jobs that are buried or delayed after it began do not
// make it longer.
func (s *Session) kick(now Time, bound uint32, out *Output) Outcome {
	t := s.used
	t.shard.lock(&s.loop.locks, now)
	var b bulk
	b.beginKick(t, bound)
	t.shard.unlock(&s.loop.locks)
	return b.turn(s, now, out)
}

// kickTube is kick for the tube that the command names.
func (s *Session) kickTube(now Time, cmd *codec.Command, out *Output) Outcome {
	sh, t := s.lockTube(now, cmd.Tube, out)
	if t == nil {
		return Done
	}
	var b bulk
	b.beginKick(t, cmd.Bound)
	sh.unlock(&s.loop.locks)
	return b.turn(s, now, out)
}

// beginKick makes b a kick of at most bound jobs of a tube, whose shard is locked.
func (b *bulk) beginKick(t *tube, bound uint32) {
	from := delayed
	if t.buried.Len() > 0 {
		from = buried
	}
	b.begin(t, kick, from, bound)
}

func (s *Session) kickJob(now Time, cmd *codec.Command, out *Output) Outcome {
	sh, r, j := s.lockJob(now, cmd.ID, out)
	if sh == nil {
		return Done
	}
	if j.state != buried && j.state.shown() != delayed {
		return s.refuseJob(sh, out)
	}
	err := sh.kick(r, j, out)
	return s.changed(sh, err, cmd, out, codec.ReplyKicked)
}
