// Package frame is what all that members send each other is cut into:
//
//	0  4  length of the payload, little-endian
//	4  1  kind
//	5  3  zero
//	8     payload
//	   4  CRC-32C of all bytes before
//
// Who reads frames knows which kinds may come, and how long each may be.
package frame

import (
	"encoding/binary"
	"hash/crc32"
)

// Around a payload.
const (
	Head = 8
	Tail = 4
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// PutHead writes a head to the beginning of b.
func PutHead(b []byte, kind uint8, length int) {
	le.PutUint32(b, uint32(length))
	le.PutUint32(b[4:], uint32(kind))
}

// ParseHead reads the head at the beginning of b. ok is false if nobody writes such a head.
func ParseHead(b []byte) (kind uint8, length uint32, ok bool) {
	rest := le.Uint32(b[4:])
	return uint8(rest), le.Uint32(b), rest <= 0xff
}

// Sum goes on with a checksum, which begins as 0.
func Sum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// Seal appends to b the checksum of what it has from an index on.
func Seal(b []byte, from int) []byte { return le.AppendUint32(b, Sum(0, b[from:])) }

// Sealed reports whether b ends with the checksum of all before.
func Sealed(b []byte) bool {
	end := len(b) - Tail
	return Sum(0, b[:end]) == le.Uint32(b[end:])
}
