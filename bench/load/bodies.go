package load

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"trellis/bench"
)

const (
	// headerSize is the part of a body that names its job; shorter bodies are all alike.
	headerSize = 8
	// patternSteps is the number of different fillings behind the header. They are windows of one block that stays
	// in the first-level cache.
	patternSteps = 4096
	// noSeq is the number of a job whose body is too short to carry one.
	noSeq = ^uint64(0)
)

// bodies makes the bodies of a run and checks those that come back. A body follows from its job's number and the seed,
// so that none is kept. Immutable after newBodies.
type bodies struct {
	sizes   bench.Sizes
	fixed   int // the size of all bodies, negative when they differ
	pattern []byte
	key     uint64 // keeps a body of another run from passing for one of this run
}

func newBodies(s bench.Sizes, seed uint64) *bodies {
	rng := rand.New(rand.NewPCG(seed, 0x7265_6c6c_6973))
	b := &bodies{sizes: s, fixed: s.Fixed(), key: rng.Uint64() >> 1}
	b.pattern = make([]byte, patternSteps+s.Most())
	for i := range b.pattern {
		b.pattern[i] = byte(rng.Uint32())
	}
	return b
}

// mix spreads numbers over 64 bits. Successive numbers are a multiple of the golden ratio apart, so that any range of
// them is spread evenly (Fibonacci hashing).
func mix(seq uint64) uint64 { return (seq + 1) * 0x9e3779b97f4a7c15 }

// size returns the size of the body of job seq. Because mix spreads evenly, a size with a weight of 1 in 10,000 comes
// once in every 10,000 jobs or so.
func (b *bodies) size(seq uint64) int {
	if b.fixed >= 0 {
		return b.fixed
	}
	return b.sizes.At(mix(seq) + b.key<<1)
}

func (b *bodies) window(seq uint64, size int) []byte {
	at := mix(seq) >> 52
	return b.pattern[at : at+uint64(size)]
}

// append appends the body of job seq, which has size bytes.
func (b *bodies) append(dst []byte, seq uint64, size int) []byte {
	if size < headerSize {
		return append(dst, b.pattern[:size]...)
	}
	dst = binary.LittleEndian.AppendUint64(dst, seq^b.key)
	return append(dst, b.window(seq, size)[headerSize:]...)
}

// check returns the number of the job whose body p is, noSeq when it is too short to tell, and false when it is
// not a body of this run.
func (b *bodies) check(p []byte) (seq uint64, ok bool) {
	if len(p) < headerSize {
		return noSeq, len(p) <= len(b.pattern) && bytes.Equal(p, b.pattern[:len(p)])
	}
	seq = binary.LittleEndian.Uint64(p) ^ b.key
	if len(p) != b.size(seq) {
		return seq, false
	}
	return seq, bytes.Equal(p[headerSize:], b.window(seq, len(p))[headerSize:])
}
