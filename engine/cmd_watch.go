package engine

import (
	"slices"

	"trellis/codec"
)

// watch has the session watch a tube, or gives one that it watches another weight.
func (s *Session) watch(now Time, name []byte, weight uint16, out *Output) {
	if s.refuseToken(name, out) {
		return
	}
	c := &s.loop.tx
	old := c.TubeNamed(now, name)
	s.loop.budget -= len(s.watched) / watchesPerCost
	// A tube that it watches stays. A long list is not searched under the lock.
	if old != nil {
		if i := s.indexOf(old); i >= 0 {
			s.setWeight(i, weight)
			out.Buf = codec.AppendWatching(out.Buf, uint64(len(s.watched)))
			return
		}
	}
	if limit := s.loop.engine.cfg.Limits.Watched; limit != 0 && len(s.watched) >= limit {
		s.loop.engine.refusedWatching.Add(1)
		out.reply(codec.ReplyOutOfMemory)
		return
	}
	t := c.Enter(now, name, 0, 1, true)
	if t == nil {
		out.reply(codec.ReplyOutOfMemory)
		return
	}
	s.watched = append(s.watched, subscribe((*claimant)(s), t))
	s.watchedShards |= t.Shards()
	s.setWeight(len(s.watched)-1, weight)
	out.Buf = codec.AppendWatching(out.Buf, uint64(len(s.watched)))
}

// ignore takes a tube off the watch list. The last entry takes its place.
func (s *Session) ignore(now Time, name []byte, out *Output) {
	s.loop.budget -= len(s.watched) / watchesPerCost
	i := slices.IndexFunc(s.watched, func(w subscription) bool { return w.Tube().Name() == string(name) })
	if i >= 0 && len(s.watched) == 1 {
		out.reply(codec.ReplyNotIgnored)
		return
	}
	if i >= 0 {
		t := s.watched[i].Tube()
		last := len(s.watched) - 1
		s.watched[i] = s.watched[last]
		s.watched[last] = subscription{}
		s.watched = s.watched[:last]
		if s.flags&hasWeights != 0 {
			s.loop.weights[s].Remove(i)
		}
		s.watchedShards = 0
		for i := range s.watched {
			s.watchedShards |= s.watched[i].Tube().Shards()
		}
		// Whoever has gone to another tube needs no list any more. Whoever has come back to
		// the first one may do so again and again.
		if last == 1 && s.watched[0].Tube() != s.first[0].Tube() {
			s.first[0] = s.watched[0]
			s.watched = s.first[:]
		}
		s.loop.tx.Attend(now, t, 0, -1)
	}
	out.Buf = codec.AppendWatching(out.Buf, uint64(len(s.watched)))
}

// indexOf is where a tube stands in the watch list, -1 if it does not.
func (s *Session) indexOf(t *tube) int {
	for i := range s.watched {
		if s.watched[i].Tube() == t {
			return i
		}
	}
	return -1
}

// setWeight gives the watched tube i, which may be a new one, a weight.
func (s *Session) setWeight(i int, weight uint16) {
	if s.flags&hasWeights == 0 && weight == 1 {
		return // as all others have
	}
	s.ownWeights().Set(i, weight)
}

// ownWeights returns the session's weights, which it makes if need be.
func (s *Session) ownWeights() *weights {
	if s.flags&hasWeights != 0 {
		return s.loop.weights[s]
	}
	w := weightsOf(slices.Repeat([]uint16{1}, len(s.watched)), s.id)
	s.loop.weigh(s, w)
	s.flags |= hasWeights
	return w
}

// weigh notes the weights of a session.
func (l *Loop) weigh(s *Session, w *weights) {
	if l.weights == nil {
		l.weights = make(map[*Session]*weights)
	}
	l.weights[s] = w
}
