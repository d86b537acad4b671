package record

// maxNames is how many names a Names holds. They take some 16 MiB at most.
const maxNames = 1 << 16

// Names keeps one string for each name of a tube that was read. When it is full it forgets
// them all, since most of them may be those of tubes that are gone. The zero Names is empty.
type Names struct {
	last string
	all  map[string]string
}

// Get returns b as a string.
func (t *Names) Get(b []byte) string {
	if string(b) == t.last {
		return t.last
	}
	s, ok := t.all[string(b)]
	if !ok {
		s = string(b)
		if t.all == nil || len(t.all) == maxNames {
			t.all = map[string]string{}
		}
		t.all[s] = s
	}
	t.last = s
	return s
}
