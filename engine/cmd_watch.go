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
	c := &s.loop.locks
	e := s.loop.engine
	sh := e.shardFor(name)
	sh.lock(c, now)
	old := sh.byName[string(name)]
	sh.unlock(c)
	s.loop.budget -= len(s.watched) / watchesPerCost
	// A tube that it watches stays. A long list is not searched under the lock.
	if old != nil {
		if i := s.indexOf(old); i >= 0 {
			s.setWeight(i, weight)
			out.Buf = codec.AppendWatching(out.Buf, uint64(len(s.watched)))
			return
		}
	}
	if limit := e.cfg.Limits.Watched; limit != 0 && len(s.watched) >= limit {
		e.usage.refusedWatching.Add(1)
		out.reply(codec.ReplyOutOfMemory)
		return
	}
	sh.lock(c, now)
	t := sh.tube(name, true)
	if t == nil {
		out.reply(codec.ReplyOutOfMemory)
		sh.unlock(c)
		return
	}
	t.watching++
	sh.unlock(c)
	s.watched = append(s.watched, subscription{waiter: s, tube: t})
	s.watchedShards |= 1 << sh.number
	s.setWeight(len(s.watched)-1, weight)
	out.Buf = codec.AppendWatching(out.Buf, uint64(len(s.watched)))
}

// ignore takes a tube off the watch list. The last entry takes its place.
func (s *Session) ignore(now Time, name []byte, out *Output) {
	c := &s.loop.locks
	s.loop.budget -= len(s.watched) / watchesPerCost
	i := slices.IndexFunc(s.watched, func(w subscription) bool { return w.tube.name == string(name) })
	if i >= 0 && len(s.watched) == 1 {
		out.reply(codec.ReplyNotIgnored)
		return
	}
	if i >= 0 {
		t := s.watched[i].tube
		last := len(s.watched) - 1
		s.watched[i] = s.watched[last]
		s.watched[last] = subscription{}
		s.watched = s.watched[:last]
		if s.flags&hasWeights != 0 {
			s.loop.weights[s].remove(i)
		}
		s.watchedShards = 0
		for i := range s.watched {
			s.watchedShards |= 1 << s.watched[i].tube.shard.number
		}
		// Whoever has gone to another tube needs no list any more. Whoever has come back to
		// the first one may do so again and again.
		if last == 1 && s.watched[0].tube != s.first[0].tube {
			s.first[0] = s.watched[0]
			s.watched = s.first[:]
		}
		t.shard.lock(c, now)
		t.watching--
		t.shard.removeIfUnused(t)
		t.shard.unlock(c)
	}
	out.Buf = codec.AppendWatching(out.Buf, uint64(len(s.watched)))
}

// indexOf is where a tube stands in the watch list, -1 if it does not.
func (s *Session) indexOf(t *tube) int {
	for i := range s.watched {
		if s.watched[i].tube == t {
			return i
		}
	}
	return -1
}
