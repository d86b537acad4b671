package arena

// Tidying brings the memory of a pool back that has shrunk but whose remaining
// blocks are scattered. The owner of the blocks moves them, since only it knows
// who refers to them: Plan says up to which chunk the pool should reach, Misplaced
// whether a block lies beyond, Move where it goes.

// Plan begins a round of tidying: it measures what the pool has needed since the
// last one, gives back chunks that are empty and not needed, and reports
// whether blocks should be moved (sparse), and whether another round may find
// more (shrunk).
func (p *Pool) Plan() (sparse, shrunk bool) {
	if p.size == 0 {
		return false, false
	}
	need := (p.peak + 1<<p.shift - 1) >> p.shift
	shrunk = p.peak > p.live || p.empty > 0 && p.peak == 0
	keep := need + need/8
	for i := len(p.chunks) - 1; i >= 0 && p.empty > 0 && p.mappedChunks() > keep; i-- {
		if c := &p.chunks[i]; c.mem != nil && c.live == 0 {
			p.drop(i)
		}
	}
	p.peak = p.live
	p.limit = len(p.chunks)
	if over := p.mappedChunks() - keep; over > 0 {
		// The last `over` of the mapped chunks are to go.
		for i := len(p.chunks) - 1; i >= 0 && over > 0; i-- {
			if p.chunks[i].mem != nil {
				over--
				p.limit = i
			}
		}
		sparse = true
	}
	return sparse, shrunk && p.mapped > 0
}

func (p *Pool) mappedChunks() int { return len(p.chunks) - p.vacant }

// Misplaced reports whether a block lies beyond the reach that was planned.
func (p *Pool) Misplaced(r Ref) bool { return int((r-1)>>p.shift) >= p.limit }

// Move copies a misplaced block to where it should be and frees it. It returns r
// itself when there is no room.
func (p *Pool) Move(r Ref) Ref {
	to, err := p.Alloc()
	if err != nil {
		return r
	}
	if p.Misplaced(to) {
		p.Free(to)
		return r
	}
	copy(p.bytes(to), p.bytes(r))
	p.Free(r)
	return to
}

// Walk calls f for taken blocks, from the highest name below `below` on down,
// until it has called it n times. It returns where to go on, 0 when there are no
// more. Begin with ^Ref(0). f may free the block that it is called for, and take
// others.
func (p *Pool) Walk(below Ref, n int, f func(Ref)) Ref {
	i := len(p.chunks) - 1
	if top := int((below - 1) >> p.shift); top <= i {
		i = top
	}
	for ; i >= 0; i-- {
		if p.chunks[i].mem == nil {
			continue
		}
		first := Ref(i)<<p.shift + 1
		for b := min(1<<p.shift, int(below-first)) - 1; b >= 0; b-- {
			c := &p.chunks[i]
			if c.mem == nil {
				break // f freed its last block
			}
			if b>>6<<6+63 == b && c.taken[b>>6] == 0 {
				b -= 63
				continue
			}
			r := first + Ref(b)
			if c.taken[b>>6]>>(b&63)&1 == 0 {
				continue
			}
			if n == 0 {
				return r + 1
			}
			n--
			f(r)
		}
	}
	return 0
}

// Plan is [Pool.Plan] for all size classes.
func (s *Bodies) Plan() (sparse, shrunk bool) {
	for i := range s.classes {
		a, b := s.classes[i].Plan()
		sparse, shrunk = sparse || a, shrunk || b
	}
	return sparse, shrunk
}

// Tidy moves a body of n bytes if it is misplaced and returns its name.
func (s *Bodies) Tidy(r Ref, n uint32) Ref {
	if n == 0 || n > largest {
		return r
	}
	p := &s.classes[class(n)]
	if !p.Misplaced(r) {
		return r
	}
	return p.Move(r)
}
