package codec

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// The longest values that the protocol allows.
const (
	// MaxLine is the length in bytes of the longest command line, CR LF
	// included: a pause-tube with the longest name and the longest delay.
	MaxLine = 224
	// MaxTubeName is the length in bytes of the longest name of a tube.
	MaxTubeName = 200
	// MaxTimeout is the longest timeout of a reserve-with-timeout in seconds.
	MaxTimeout = math.MaxInt32
)

// The lexers below read one argument that begins at s[i]. They return the index
// behind it, or noMatch. None reads over a CR LF, so that s may go on behind the
// line; what comes out is only meaningful if the line does end within s.

// noMatch is the index that says that an argument is not there or not valid.
const noMatch = -1

// has reports whether s begins with prefix.
func has(s []byte, prefix string) bool {
	return len(s) >= len(prefix) && string(s[:len(prefix)]) == prefix
}

// number32 reads any number of spaces and a decimal number below 2^32.
func number32(s []byte, i int) (uint32, int) {
	v, i := number64(s, i)
	if v > math.MaxUint32 {
		return 0, noMatch
	}
	return uint32(v), i
}

// number64 reads any number of spaces and a decimal number below 2^64.
func number64(s []byte, i int) (uint64, int) {
	for i < len(s) && s[i] == ' ' {
		i++
	}
	if len(s)-i < 8 {
		return digits(s, i, i, 0)
	}
	v, n := eightDigits(binary.LittleEndian.Uint64(s[i : i+8]))
	if n < 8 {
		if n == 0 {
			return 0, noMatch
		}
		return v, i + n
	}
	return digits(s, i, i+8, v)
}

// eightDigits reads a number of at most eight digits that begins in the lowest
// byte of w, the first in memory. It returns the number and how many digits it
// has.
func eightDigits(w uint64) (v uint64, n int) {
	const each = 0x01010101_01010101
	w ^= each * '0' // makes a digit its value
	// Adding 0x80-10 sets the highest bit of a byte from 10 to 127. The bytes
	// above have it already, and carry only into bytes that do not count.
	other := (w + each*(0x80-10) | w) & (each * 0x80)
	n = bits.TrailingZeros64(other) >> 3
	w <<= -8 * n & 63 // the other bytes make way for leading zeros
	// Digits become pairs, and these two numbers of four digits each.
	w = w*10 + w>>8
	const low = 0x000000ff_000000ff
	w = w&low*(100+1000000<<32) + w>>16&low*(1+10000<<32)
	return w >> 32, n
}

// digits reads the decimal digits from s[i] on that follow those of v, which
// begin at s[begin]. The number must be below 2^64.
func digits(s []byte, begin, i int, v uint64) (uint64, int) {
	for ; i < len(s); i++ {
		c := s[i] - '0'
		if c > 9 {
			break
		}
		high, low := bits.Mul64(v, 10)
		sum, carry := bits.Add64(low, uint64(c), 0)
		if high+carry != 0 {
			return 0, noMatch
		}
		v = sum
	}
	if i == begin {
		return 0, noMatch
	}
	return v, i
}

// strtoul reads what C's function of that name takes as a number: white space, a
// sign that negates modulo 2^64, and decimal digits.
func strtoul(s []byte, i int) (uint64, int) {
	for i < len(s) && (s[i] == ' ' || s[i] >= '\t' && s[i] <= '\r') {
		if s[i] == '\r' && i+1 < len(s) && s[i+1] == '\n' {
			return 0, noMatch
		}
		i++
	}
	if i == len(s) {
		return 0, noMatch
	}
	negate := s[i] == '-'
	if negate || s[i] == '+' {
		i++
	}
	v, i := digits(s, i, i, 0)
	if negate {
		v = -v
	}
	return v, i
}

// nameRun reads the longest run of bytes that may occur in a tube's name. It may
// be empty.
func nameRun(s []byte, i int) int {
	for i < len(s) && nameByte[s[i]] {
		i++
	}
	return i
}

// validName reports whether name, a run of name bytes, may name a tube.
func validName(name []byte) bool {
	return 0 < len(name) && len(name) <= MaxTubeName && name[0] != '-'
}

// ValidTubeName reports whether the protocol allows name as the name of a tube.
func ValidTubeName(name []byte) bool { return nameRun(name, 0) == len(name) && validName(name) }

// nameByte tells the bytes that may occur in a tube's name.
var nameByte = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-+/;.$_()") {
		t[c] = true
	}
	return t
}()
