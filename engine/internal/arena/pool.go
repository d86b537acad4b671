package arena

import (
	"fmt"
	"math"
	"math/bits"
	"unsafe"
)

// Ref names a block of a pool. Zero names none.
type Ref = uint32

// Pool hands out blocks of one size. Make one with [NewPool].
type Pool struct {
	size   uintptr // bytes in a block
	shift  uint32  // a chunk has 1<<shift blocks; less than 32
	mask   uint32  // 1<<shift - 1
	chunks []chunk
	bases  []unsafe.Pointer // first byte of each chunk, nil where unmapped
	low    int              // no chunk below this one has a free block, unmapped ones aside
	vacant int              // unmapped entries of chunks
	empty  int              // mapped chunks without a taken block
	live   int              // taken blocks
	peak   int              // the most of live since the last Plan
	limit  int              // chunks from this one on are to be emptied; see Plan
	mapped int64            // bytes mapped from the system
}

type chunk struct {
	mem   []byte
	taken []uint64 // a bit for every block
	hint  uint32   // no word of taken below this one has a zero bit
	live  uint32
}

// chunkTarget is the size towards which chunks are made: large enough that
// ten million jobs need few mappings, small enough to come back.
const chunkTarget = 256 << 10

// NewPool returns a pool of blocks of size bytes, a multiple of 8.
func NewPool(size int) Pool {
	target := chunkTarget
	if kept {
		target = keptTarget
	}
	n := uint32(target / size)
	shift := uint32(3)
	if n > 8 {
		shift = uint32(bits.Len32(n) - 1)
	}
	return Pool{size: uintptr(size), shift: shift, mask: 1<<shift - 1, limit: math.MaxInt}
}

// Live is the number of taken blocks.
func (p *Pool) Live() int { return p.live }

// Mapped is the number of bytes that the pool holds from the system. Pages of
// them that were never written cost no memory.
func (p *Pool) Mapped() int64 { return p.mapped }

// Alloc takes a block. Its content is arbitrary. It fails when the system has
// no more memory or the pool no more names.
func (p *Pool) Alloc() (Ref, error) {
	for p.low < len(p.chunks) {
		c := &p.chunks[p.low]
		if c.mem != nil && c.live <= p.mask {
			return p.take(p.low), nil
		}
		p.low++
	}
	i, err := p.grow()
	if err != nil {
		return 0, err
	}
	return p.take(i), nil
}

func (p *Pool) take(i int) Ref {
	c := &p.chunks[i]
	w := c.hint
	for c.taken[w] == ^uint64(0) {
		w++
	}
	c.hint = w
	free := ^c.taken[w]
	c.taken[w] |= free & -free
	if c.live == 0 {
		p.empty--
	}
	c.live++
	p.live++
	p.peak = max(p.peak, p.live)
	return uint32(i)<<(p.shift&31) + w<<6 + uint32(bits.TrailingZeros64(free)) + 1
}

func (p *Pool) grow() (int, error) {
	i := len(p.chunks)
	if p.vacant > 0 {
		for i = 0; p.chunks[i].mem != nil; i++ {
		}
	} else if uint64(i+1)<<p.shift > 1<<32-1 {
		return 0, fmt.Errorf("pool of %d-byte blocks: no names left", p.size)
	}
	n := pageRound(int(p.size) << p.shift)
	mem, err := mapMemory(n)
	if err != nil {
		return 0, err
	}
	c := chunk{mem: mem, taken: make([]uint64, (uint32(1)<<p.shift+63)>>6)}
	if p.shift < 6 {
		c.taken[0] = ^uint64(0) << (1 << p.shift)
	}
	p.mapped += int64(n)
	p.empty++
	if i < len(p.chunks) {
		p.vacant--
		p.chunks[i], p.bases[i] = c, unsafe.Pointer(&mem[0])
	} else {
		p.chunks, p.bases = append(p.chunks, c), append(p.bases, unsafe.Pointer(&mem[0]))
	}
	p.low = min(p.low, i)
	return i, nil
}

// Free gives a block back. Freeing a block that is not taken is a broken
// invariant of the caller and panics.
func (p *Pool) Free(r Ref) {
	i := int((r - 1) >> (p.shift & 31))
	c := &p.chunks[i]
	b := (r - 1) & p.mask
	w, bit := b>>6, uint64(1)<<(b&63)
	if c.taken[w]&bit == 0 {
		panic(fmt.Sprintf("arena: block %d of a pool of %d-byte blocks freed twice", r, p.size))
	}
	c.taken[w] &^= bit
	c.hint = min(c.hint, w)
	c.live--
	p.live--
	p.low = min(p.low, i)
	if c.live == 0 {
		p.empty++
		if p.empty > 1 {
			p.drop(i)
		}
	}
}

func (p *Pool) drop(i int) {
	n := len(p.chunks[i].mem)
	discard(p.chunks[i].mem)
	p.chunks[i], p.bases[i] = chunk{}, nil
	p.mapped -= int64(n)
	p.empty--
	p.vacant++
}

// Pointer returns the first byte of a taken block.
func (p *Pool) Pointer(r Ref) unsafe.Pointer {
	r--
	return unsafe.Add(p.bases[r>>(p.shift&31)], uintptr(r&p.mask)*p.size)
}

func (p *Pool) bytes(r Ref) []byte {
	return unsafe.Slice((*byte)(p.Pointer(r)), p.size)
}

// Slab is a pool of values of one type, which must hold no pointers. Make one
// with [NewSlab].
type Slab[T any] struct{ Pool }

// NewSlab returns an empty slab.
func NewSlab[T any]() Slab[T] {
	var v T
	return Slab[T]{NewPool(int(unsafe.Sizeof(v)))}
}

// At returns the value in a taken block.
func (s *Slab[T]) At(r Ref) *T { return (*T)(s.Pointer(r)) }
