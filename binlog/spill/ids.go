package spill

import (
	"encoding/binary"
	"errors"
	"maps"
	"math/bits"
	"slices"
)

const (
	leafIDs  = 512
	leafSize = leafIDs / 8
	// maxLeaves is how many leaves a set has at most that is told: 32 MiB, for more than the jobs of any member.
	maxLeaves  = 1 << 19
	idsVersion = 1
)

// leaf has a bit for each of 512 ids that follow each other.
type leaf [leafIDs / 64]uint64

// IDs is a set of ids of jobs. The zero value is empty. It takes some 100 bytes for each 512 ids of which it has one.
// It is for one goroutine.
type IDs struct{ leaves map[uint64]leaf }

// Add adds an id. It reports false if the set has it already.
func (s *IDs) Add(id uint64) bool {
	l := s.leaves[id/leafIDs]
	word, bit := &l[id%leafIDs/64], uint64(1)<<(id%64)
	if *word&bit != 0 {
		return false
	}
	if s.leaves == nil {
		s.leaves = map[uint64]leaf{}
	}
	*word |= bit
	s.leaves[id/leafIDs] = l
	return true
}

// Has reports whether an id is in the set.
func (s *IDs) Has(id uint64) bool {
	l := s.leaves[id/leafIDs]
	return l[id%leafIDs/64]>>(id%64)&1 != 0
}

// rank is how many ids before this one its leaf has.
func (s *IDs) rank(id uint64) (n int) {
	l := s.leaves[id/leafIDs]
	for _, word := range l[:id%leafIDs/64] {
		n += bits.OnesCount64(word)
	}
	return n + bits.OnesCount64(l[id%leafIDs/64]&(1<<(id%64)-1))
}

// Encode writes the set as doc.go has it.
func (s *IDs) Encode() []byte {
	b, next := []byte{idsVersion}, uint64(0)
	for _, number := range slices.Sorted(maps.Keys(s.leaves)) {
		b = binary.AppendUvarint(b, number-next)
		for _, word := range s.leaves[number] {
			b = binary.LittleEndian.AppendUint64(b, word)
		}
		next = number + 1
	}
	return b
}

// ErrIDs tells of bytes that are no set of ids.
var ErrIDs = errors.New("not a set of ids")

// DecodeIDs reads what Encode has written, and keeps nothing of it.
func DecodeIDs(b []byte) (s IDs, err error) {
	if len(b) == 0 || b[0] != idsVersion {
		return s, ErrIDs
	}
	s.leaves = map[uint64]leaf{}
	next := uint64(0)
	for b = b[1:]; len(b) > 0; b = b[leafSize:] {
		gap, n := binary.Uvarint(b)
		number := next + gap
		if b = b[max(n, 0):]; n <= 0 || len(b) < leafSize || number < gap || len(s.leaves) == maxLeaves {
			return IDs{}, ErrIDs
		}
		var l leaf
		for i := range l {
			l[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
		s.leaves[number] = l
		next = number + 1
	}
	return s, nil
}
