package engine

import (
	"slices"

	"trellis/codec"
)

func (s *Session) use(now Time, name []byte, out *Output) {
	c := &s.loop.caller
	old := s.used
	if old.name == string(name) {
		out.Buf = codec.AppendUsing(out.Buf, name)
		return
	}
	e := s.loop.engine
	sh := e.shardFor(name)
	sh.lock(c, now)
	t := sh.tube(name, e.cfg.Limits.Tubes)
	if t == nil {
		sh.unlock(c)
		out.reply(codec.ReplyOutOfMemory)
		return
	}
	t.using++
	s.used = t
	sh.unlock(c)
	out.Buf = codec.AppendUsing(out.Buf, name)
	old.shard.lock(c, now)
	old.using--
	old.shard.dropIfUnused(old)
	old.shard.unlock(c)
}

func (s *Session) watch(now Time, name []byte, out *Output) {
	c := &s.loop.caller
	e := s.loop.engine
	sh := e.shardFor(name)
	sh.lock(c, now)
	old := sh.byName[string(name)]
	sh.unlock(c)
	// A tube that it watches stays. A long list is not searched under the lock.
	if old != nil && s.watchIndex(old) >= 0 {
		out.Buf = codec.AppendWatching(out.Buf, uint64(len(s.watched)))
		return
	}
	if limit := e.cfg.Limits.Watched; limit != 0 && len(s.watched) >= limit {
		e.usage.refusedWatching.Add(1)
		out.reply(codec.ReplyOutOfMemory)
		return
	}
	sh.lock(c, now)
	t := sh.tube(name, e.cfg.Limits.Tubes)
	if t == nil {
		out.reply(codec.ReplyOutOfMemory)
		sh.unlock(c)
		return
	}
	t.watching++
	sh.unlock(c)
	s.watched = append(s.watched, watch{session: s, tube: t})
	s.watches |= 1 << sh.number
	out.Buf = codec.AppendWatching(out.Buf, uint64(len(s.watched)))
}

// ignore takes a tube off the watch list. The last entry takes its place.
func (s *Session) ignore(now Time, name []byte, out *Output) {
	c := &s.loop.caller
	i := slices.IndexFunc(s.watched, func(w watch) bool { return w.tube.name == string(name) })
	if i >= 0 && len(s.watched) == 1 {
		out.reply(codec.ReplyNotIgnored)
		return
	}
	if i >= 0 {
		t := s.watched[i].tube
		last := len(s.watched) - 1
		s.watched[i] = s.watched[last]
		s.watched[last] = watch{}
		s.watched = s.watched[:last]
		s.watches = 0
		for i := range s.watched {
			s.watches |= 1 << s.watched[i].tube.shard.number
		}
		t.shard.lock(c, now)
		t.watching--
		t.shard.dropIfUnused(t)
		t.shard.unlock(c)
	}
	out.Buf = codec.AppendWatching(out.Buf, uint64(len(s.watched)))
}

// watchIndex is where a tube stands in the watch list, -1 if it does not.
func (s *Session) watchIndex(t *tube) int {
	for i := range s.watched {
		if s.watched[i].tube == t {
			return i
		}
	}
	return -1
}

func (s *Session) pauseTube(now Time, name []byte, delay uint32, out *Output) {
	c := &s.loop.caller
	sh := s.loop.engine.shardFor(name)
	sh.lock(c, now)
	t := sh.byName[string(name)]
	if t == nil {
		out.reply(codec.ReplyNotFound)
		sh.unlock(c)
		return
	}
	t.pauses++
	t.pause, t.pausedUntil = delay, now+seconds(delay)
	if delay == 0 {
		t.pausedUntil = 0
		sh.dispatch(t, now)
	} else {
		sh.arm(&t.timer, t.pausedUntil)
	}
	out.reply(codec.ReplyPaused)
	sh.unlock(c)
}

// listTurn is how many tubes are listed before others have the loop.
const listTurn = 4096

// listing is a list of tubes that is being made.
type listing struct {
	left []*tube
	data []byte
}

// listTubes lists the tubes that there are when it begins.
func (s *Session) listTubes(out *Output) Outcome {
	g := &s.loop.engine.registry
	g.mu.Lock()
	tubes := slices.Clone(g.tubes)
	g.mu.Unlock()
	return s.goOnListing(listing{tubes, append(s.loop.scratch[:0], "---\n"...)}, out)
}

// goOnListing lists some tubes. Until it has listed all it returns Yield, and keeps
// in the session what is left.
func (s *Session) goOnListing(li listing, out *Output) Outcome {
	n := min(listTurn, len(li.left))
	for _, t := range li.left[:n] {
		li.data = appendItem(li.data, t.name)
	}
	if li.left = li.left[n:]; len(li.left) > 0 {
		s.loop.scratch = nil // it belongs to the list now
		s.waiter().listing = &li
		return Yield
	}
	s.loop.reply(out, li.data)
	return Done
}

func (s *Session) listTubesWatched(out *Output) {
	data := append(s.loop.scratch[:0], "---\n"...)
	for i := range s.watched {
		data = appendItem(data, s.watched[i].tube.name)
	}
	s.loop.reply(out, data)
}

func appendItem(b []byte, name string) []byte {
	b = append(b, "- "...)
	b = append(b, name...)
	return append(b, '\n')
}

// reply appends data that was gathered in the loop's scratch memory, and keeps
// that memory for the next time unless it has grown large.
func (l *Loop) reply(out *Output, data []byte) {
	out.Buf = codec.AppendOK(out.Buf, data)
	if l.scratch = data[:0]; cap(data) > maxScratch {
		l.scratch = nil
	}
}

const maxScratch = 64 << 10
