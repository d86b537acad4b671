// Package spread makes numbers that look as if dice had made them, and are the same each time.
package spread

// Golden is 2^64 divided by the golden ratio: multiples of it, modulo 2^64, are spread more
// evenly than those of any other number.
const Golden uint64 = 0x9E3779B97F4A7C15

// Mix is the finalizer of splitmix64, a bijection: what it makes of consecutive numbers has
// nothing to do with each other.
func Mix(z uint64) uint64 {
	z ^= z >> 30
	z *= 0xBF58476D1CE4E5B9
	z ^= z >> 27
	z *= 0x94D049BB133111EB
	return z ^ z>>31
}
