package bench

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
)

const (
	// headerSize is the part of a body that names its job; shorter bodies are all alike.
	headerSize = 8
	// patternSteps is the number of different fillings behind the header. They are windows of one block that stays
	// in the first-level cache.
	patternSteps = 4096
	// sizeTable is the number of sizes drawn from a distribution; jobs take them by a hash of their number.
	sizeTable = 1024
	// noSeq is the number of a job whose body is too short to carry one.
	noSeq = ^uint64(0)
)

// bodies makes the bodies of a run and recognises them. Everything about a body follows from the job's number and the
// seed, so that nothing about it must be kept. Immutable after newBodies.
type bodies struct {
	sizes   []int
	pattern []byte
	key     uint64 // hides the numbers of one run from another
}

func newBodies(s Sizes, seed uint64) *bodies {
	rng := rand.New(rand.NewPCG(seed, 0x7265_6c6c_6973))
	b := &bodies{sizes: s.draw(rng, sizeTable), key: rng.Uint64() >> 1}
	largest := 0
	for _, n := range b.sizes {
		largest = max(largest, n)
	}
	b.pattern = make([]byte, patternSteps+largest)
	for i := range b.pattern {
		b.pattern[i] = byte(rng.Uint32())
	}
	return b
}

func mix(seq uint64) uint64 { return (seq + 1) * 0x9e3779b97f4a7c15 }

func (b *bodies) size(seq uint64) int {
	if len(b.sizes) == 1 {
		return b.sizes[0]
	}
	return b.sizes[mix(seq)>>32%uint64(len(b.sizes))]
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
