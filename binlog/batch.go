package binlog

import "sync"

// batch is what was appended since the last batch was taken for writing.
type batch struct {
	chunks  []chunk
	records int
	bytes   int64

	// encoders counts the appends that are still filling their part of a chunk. It
	// grows only with the log's mu held, and so not after the batch was taken; the
	// writer waits until it is zero. An encoder may hold a lock of the owner's, but
	// takes none, and waits for nothing.
	encoders *sync.WaitGroup
}

// chunk is bytes of one segment that are written with one call.
type chunk struct {
	seg *segment
	off int64
	buf []byte
}

// chunkSize is the size of a chunk's buffer in bytes, unless a record is larger.
// A batch grows by chunks, so that nothing is copied when it does.
const chunkSize = 256 << 10

// maxIdle is how many buffers are kept for further chunks.
const maxIdle = 32

// grow returns the place in the batch for the next n bytes of seg, and the idle
// buffers that are left. With the log's mu held.
func (b *batch) grow(seg *segment, n int64, idle [][]byte) ([]byte, [][]byte) {
	b.bytes += n
	if k := len(b.chunks); k > 0 {
		c := &b.chunks[k-1]
		if m := int64(len(c.buf)); c.seg == seg && m+n <= int64(cap(c.buf)) {
			c.buf = c.buf[:m+n]
			return c.buf[m : m+n : m+n], idle
		}
	}
	var buf []byte
	if k := len(idle); k > 0 && n <= chunkSize {
		buf, idle = idle[k-1], idle[:k-1]
	} else {
		buf = make([]byte, max(n, chunkSize))
	}
	b.chunks = append(b.chunks, chunk{seg: seg, off: seg.used, buf: buf[:n]})
	return buf[:n:n], idle
}
