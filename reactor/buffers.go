package reactor

import "github.com/valyala/bytebufferpool"

// Pending input and output lie in pooled buffers. Small ones have a pool of their
// own: a client that sends twenty bytes behind a waiting reserve must not hold
// the memory of one that sent 64 KiB.
var smallBuffers, largeBuffers bytebufferpool.Pool

const (
	smallBuffer = 2 << 10 // largest capacity in bytes in smallBuffers
	largeBuffer = 1 << 20 // largest capacity in bytes in largeBuffers; what is larger goes to the garbage collector
)

// appendPooled appends p to b, which may be nil, and returns the buffer that
// holds both.
func appendPooled(b *bytebufferpool.ByteBuffer, p []byte) *bytebufferpool.ByteBuffer {
	n := len(p)
	if b != nil {
		n += len(b.B)
	}
	switch {
	case b == nil && n <= smallBuffer:
		b = smallBuffers.Get()
	case b == nil:
		b = largeBuffers.Get()
	case n > smallBuffer && cap(b.B) <= smallBuffer:
		large := largeBuffers.Get()
		large.B = append(large.B, b.B...)
		smallBuffers.Put(b)
		b = large
	}
	b.B = append(b.B, p...)
	return b
}

// release gives b back to its pool.
func release(b *bytebufferpool.ByteBuffer) {
	switch {
	case cap(b.B) <= smallBuffer:
		smallBuffers.Put(b)
	case cap(b.B) <= largeBuffer:
		largeBuffers.Put(b)
	}
}
