package inspect

// IDSet is a set of ids. Ids that are near each other share a word's bits, so
// that the ids of a busy queue cost a fraction of a byte each. The zero IDSet is
// empty. It is for one goroutine: Has changes it too.
type IDSet struct {
	words map[uint64]*[8]uint64 // by id / 512
	last  uint64                // the key of hot
	hot   *[8]uint64            // the words that were used last
}

// Add adds an id.
func (s *IDSet) Add(id uint64) {
	key := id >> 9
	if s.hot == nil || s.last != key {
		w := s.words[key]
		if w == nil {
			if s.words == nil {
				s.words = map[uint64]*[8]uint64{}
			}
			w = new([8]uint64)
			s.words[key] = w
		}
		s.last, s.hot = key, w
	}
	s.hot[id>>6&7] |= 1 << (id & 63)
}

// Has reports whether an id was added.
func (s *IDSet) Has(id uint64) bool {
	if len(s.words) == 0 {
		return false
	}
	key := id >> 9
	if s.hot == nil || s.last != key {
		s.last, s.hot = key, s.words[key]
		if s.hot == nil {
			return false
		}
	}
	return s.hot[id>>6&7]&(1<<(id&63)) != 0
}
