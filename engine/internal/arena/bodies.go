package arena

import (
	"math/bits"
	"unsafe"
)

// Bodies stores byte strings. The zero value is empty and ready for use.
type Bodies struct {
	classes [numClasses]Pool
	large   []([]byte) // mappings of bodies over the largest class
	unused  []Ref      // free entries of large
	mapped  int64      // bytes of large that bodies take, in whole pages
}

// Size classes: every 8 bytes up to 128, then eight steps in every doubling,
// so at most an eighth of a block is lost. Mappings of larger bodies have such sizes
// too, so that they can be used again; what they do not use costs no memory.
const (
	fineStep  = 8
	fineTop   = 128
	numFine   = fineTop / fineStep
	largest   = 64 << 10
	doublings = 9 // 128 << 9 is largest
	// numClasses includes the fine classes, then 8 for each doubling.
	numClasses = numFine + doublings*8
)

// class returns the class of a body of n bytes.
func class(n uint32) int {
	if n <= fineTop {
		return int(max(n, 1)-1) / fineStep
	}
	top := bits.Len32(n-1) - 1 // n is in (1<<top, 2<<top]
	step := (n - 1) >> (top - 3) & 7
	return numFine + (top-7)*8 + int(step)
}

func classSize(c int) int {
	if c < numFine {
		return (c + 1) * fineStep
	}
	c -= numFine
	return 1 << (7 + c/8) / 8 * (9 + c%8)
}

// Footprint is the memory in bytes that a body of n bytes takes.
func Footprint(n uint32) int64 {
	if n <= fineTop {
		return int64(n+fineStep-1) &^ (fineStep - 1)
	}
	return footprintOver(n)
}

// footprintOver is Footprint for a body of more than fineTop bytes.
func footprintOver(n uint32) int64 {
	if n > largest {
		return int64(pageRound(int(n)))
	}
	return int64(classSize(class(n)))
}

// Alloc takes room for a body of n bytes. An empty body takes none and is Ref 0.
func (s *Bodies) Alloc(n uint32) (Ref, error) {
	switch {
	case n == 0:
		return 0, nil
	case n > largest:
		return s.allocLarge(n)
	}
	c := class(n)
	p := &s.classes[c]
	if p.size == 0 {
		*p = NewPool(classSize(c))
	}
	return p.Alloc()
}

func (s *Bodies) allocLarge(n uint32) (Ref, error) {
	mem, err := mapMemory(classSize(class(n)))
	if err != nil {
		return 0, err
	}
	s.mapped += Footprint(n)
	if k := len(s.unused); k > 0 {
		r := s.unused[k-1]
		s.unused = s.unused[:k-1]
		s.large[r-1] = mem
		return r, nil
	}
	s.large = append(s.large, mem)
	return Ref(len(s.large)), nil
}

// Free gives back the room of a body of n bytes.
func (s *Bodies) Free(r Ref, n uint32) {
	switch {
	case n == 0:
	case n > largest:
		s.mapped -= Footprint(n)
		discard(s.large[r-1])
		s.large[r-1] = nil
		s.unused = append(s.unused, r)
	default:
		s.classes[class(n)].Free(r)
	}
}

// Bytes returns the n bytes of a body.
func (s *Bodies) Bytes(r Ref, n uint32) []byte {
	switch {
	case n == 0:
		return nil
	case n > largest:
		return s.large[r-1][:n:n]
	}
	return unsafe.Slice((*byte)(s.classes[class(n)].Pointer(r)), n)
}

// Mapped is the number of bytes held from the system.
func (s *Bodies) Mapped() int64 {
	n := s.mapped
	for i := range s.classes {
		n += s.classes[i].mapped
	}
	return n
}
