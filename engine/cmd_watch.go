package engine

import (
	"slices"

	"trellis/codec"
	"trellis/engine/internal/weights"
)

// watch has the session watch a tube, or gives one that it watches another weight.
func (s *Session) watch(now Time, name []byte, weight uint16, out *Output) {
	if s.refuseToken(name, out) {
		return
	}
	i := s.loop.tx.Watch(now, &s.client, name)
	if i < 0 {
		out.Reply(codec.ReplyOutOfMemory)
		return
	}
	s.setWeight(i, weight)
	out.Buf = codec.AppendWatching(out.Buf, uint64(s.client.Watching()))
}

// ignore takes a tube off the watch list. The last entry takes its place.
func (s *Session) ignore(now Time, name []byte, out *Output) {
	i, ok := s.loop.tx.Ignore(now, &s.client, name)
	if !ok {
		out.Reply(codec.ReplyNotIgnored)
		return
	}
	if i >= 0 && s.client.Flags&hasWeights != 0 {
		s.loop.weights[s].Remove(i)
	}
	out.Buf = codec.AppendWatching(out.Buf, uint64(s.client.Watching()))
}

// setWeight gives the watched tube i, which may be a new one, a weight.
func (s *Session) setWeight(i int, weight uint16) {
	if s.client.Flags&hasWeights == 0 && weight == 1 {
		return // as all others have
	}
	s.ownWeights().Set(i, weight)
}

// ownWeights returns the session's weights, which it makes if need be.
func (s *Session) ownWeights() *weights.Weights {
	if s.client.Flags&hasWeights != 0 {
		return s.loop.weights[s]
	}
	w := weights.Of(slices.Repeat([]uint16{1}, s.client.Watching()), s.id)
	s.loop.weigh(s, w)
	s.client.Flags |= hasWeights
	return w
}

// weigh notes the weights of a session.
func (l *Loop) weigh(s *Session, w *weights.Weights) {
	if l.weights == nil {
		l.weights = make(map[*Session]*weights.Weights)
	}
	l.weights[s] = w
}
