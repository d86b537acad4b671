package stream

import "container/heap"

// owed are the streams of a loop whose clients have to take output before they can go on, a heap with the one that
// is owed most first. It is kept only with Config.MaxOutputTotal. What waits for a commit is not the client's
// fault, and no reason to be in it.
type owed []*Stream

// Largest is the stream whose client is owed most, and how many bytes; nil if nobody who could take output is owed
// any. It is known only with Config.MaxOutputTotal.
func (ss *Streams) Largest() (s *Stream, bytes int) {
	if len(ss.owed) == 0 {
		return nil, 0
	}
	return ss.owed[0], ss.owed[0].pending.owed
}

// noteOwed is called behind everything that may change what the client is owed.
func (ss *Streams) noteOwed(s *Stream) {
	x, n := s.pending, 0
	if s.stalled {
		n = x.out.len()
	}
	before := x.owed
	if n == before {
		return
	}
	switch x.owed = n; {
	case before == 0:
		heap.Push(&ss.owed, s)
	case n == 0:
		heap.Remove(&ss.owed, int(x.owedAt))
	default:
		heap.Fix(&ss.owed, int(x.owedAt))
	}
	ss.publishOwed()
	if n > before {
		ss.cfg.Owner.OwedMore()
	}
}

// forgetOwed is for a stream that is closed.
func (ss *Streams) forgetOwed(s *Stream) {
	if x := s.pending; x != nil && x.owed > 0 {
		heap.Remove(&ss.owed, int(x.owedAt))
		x.owed = 0
		ss.publishOwed()
	}
}

// publishOwed shows all loops what Largest is owed.
func (ss *Streams) publishOwed() {
	_, most := ss.Largest()
	ss.MostOwed.Store(int64(most))
}

// The rest is for package heap.

func (h owed) Len() int           { return len(h) }
func (h owed) Less(i, j int) bool { return h[i].pending.owed > h[j].pending.owed }

func (h owed) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pending.owedAt, h[j].pending.owedAt = int32(i), int32(j)
}

func (h *owed) Push(s any) {
	s.(*Stream).pending.owedAt = int32(len(*h))
	*h = append(*h, s.(*Stream))
}

func (h *owed) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return s
}
