package buffer

import "github.com/valyala/bytebufferpool"

// Buffer is a buffer of a pool. Its bytes are B.
type Buffer = bytebufferpool.ByteBuffer

const (
	small = 2 << 10 // largest capacity in bytes in smallBuffers
	large = 1 << 20 // largest capacity in bytes in largeBuffers; what is larger goes to the garbage collector
)

var smallBuffers, largeBuffers bytebufferpool.Pool

// Append appends p to b, which may be nil, and returns the buffer that holds both. b is not the caller's
// any more.
func Append(b *Buffer, p []byte) *Buffer {
	n := len(p)
	if b != nil {
		n += len(b.B)
	}
	switch {
	case b == nil && n <= small:
		b = smallBuffers.Get()
	case b == nil:
		b = largeBuffers.Get()
	case n > small && cap(b.B) <= small:
		grown := largeBuffers.Get()
		grown.B = append(grown.B, b.B...)
		smallBuffers.Put(b)
		b = grown
	}
	b.B = append(b.B, p...)
	return b
}

// Get returns a buffer with n bytes, whatever they are.
func Get(n int) *Buffer {
	b := largeBuffers.Get()
	if cap(b.B) < n {
		b.B = make([]byte, n)
	}
	b.B = b.B[:n]
	return b
}

// Release gives b back to its pool.
func Release(b *Buffer) {
	switch {
	case cap(b.B) <= small:
		smallBuffers.Put(b)
	case cap(b.B) <= large:
		largeBuffers.Put(b)
	}
}
