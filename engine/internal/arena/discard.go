package arena

// Discard frees all blocks at once, whoever has them, and leaves the pool as it was
// made. Their memory goes back to the system with GiveBack.
func (p *Pool) Discard() {
	for i := range p.chunks {
		if mem := p.chunks[i].mem; mem != nil {
			discard(mem)
		}
	}
	if p.size != 0 {
		*p = NewPool(int(p.size))
	}
}

// Discard frees all bodies at once.
func (s *Bodies) Discard() {
	for i := range s.classes {
		s.classes[i].Discard()
	}
	for _, mem := range s.large {
		if mem != nil {
			discard(mem)
		}
	}
	s.large, s.unused, s.mapped = nil, nil, 0
}
