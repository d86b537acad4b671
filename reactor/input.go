package reactor

import (
	"slices"

	"trellis/reactor/internal/buffer"
)

const (
	// readSize is how much one read brings at most; gnet has one buffer of that
	// size for each loop.
	readSize = 64 << 10

	// keepInput is how much input may wait to be executed. When there is more, the
	// client is not read any more. Because what a read has brought cannot be refused,
	// and gnet may have been told of input before it is told to pause, up to two
	// reads more are kept.
	keepInput = 64 << 10

	// inputCap is how much input may wait where gnet reads on to the end of the input
	// although reading is paused, as it does with kqueue. A client that sends more is closed.
	inputCap = 4 << 20
)

// inputQueue is what was read from a client and cannot be executed yet. It takes
// whatever was read, because that cannot be given back; full and overflowed tell
// when to stop reading. Its zero value is empty and has no buffer.
type inputQueue struct {
	buf *buffer.Buffer // nil while the queue is empty
	at  int            // where in buf the next command begins
	// again is how many of the first bytes were taken out before, and have come back.
	again int
	// rest says that gnet has reported the end of the input without reading all that
	// comes before it: the loop reads that itself.
	rest bool
}

func (q *inputQueue) empty() bool { return q.buf == nil }

// len is the number of bytes that wait.
func (q *inputQueue) len() int {
	if q.buf == nil {
		return 0
	}
	return len(q.buf.B) - q.at
}

// bytes are what waits. They are valid until the queue changes.
func (q *inputQueue) bytes() []byte { return q.buf.B[q.at:] }

// news is how many bytes wait that were not taken out before. The others do not count: a body is as long as a put may
// say.
func (q *inputQueue) news() int { return q.len() - q.again }

// full tells that the client is not to be read for now.
func (q *inputQueue) full() bool { return q.news() >= keepInput }

// overflowed tells that the client has sent more than may be kept.
func (q *inputQueue) overflowed() bool { return q.news() >= inputCap }

// add copies p to the end.
func (q *inputQueue) add(p []byte, n *counts) {
	if q.at > 0 {
		q.buf.B = q.buf.B[:copy(q.buf.B, q.buf.B[q.at:])]
		q.at = 0
	}
	q.buf = buffer.Append(q.buf, p)
	n.addInput(len(p), len(q.buf.B))
}

// prepend copies the pieces of what was taken out, which may be a large body, to the beginning.
func (q *inputQueue) prepend(n *counts, pieces ...[]byte) {
	waits := q.len()
	if q.buf != nil {
		pieces = append(slices.Clip(pieces), q.bytes())
	}
	b := &buffer.Buffer{B: slices.Concat(pieces...)}
	if q.buf != nil {
		buffer.Release(q.buf)
	}
	q.buf, q.at = b, 0
	back := len(b.B) - waits
	q.again += back
	n.addInput(back, len(b.B))
}

// adopt makes a buffer, which is not empty, the contents of an empty queue.
func (q *inputQueue) adopt(b *buffer.Buffer, n *counts) {
	q.buf, q.at = b, 0
	n.addInput(len(b.B), len(b.B))
}

// keepLast drops all but the last k bytes.
func (q *inputQueue) keepLast(k int, n *counts) {
	n.pendingInput.Add(int64(k - q.len()))
	q.again = max(0, q.again-(q.len()-k))
	q.at = len(q.buf.B) - k
	if k == 0 {
		buffer.Release(q.buf)
		q.buf, q.at = nil, 0
	}
}

// discard empties the queue.
func (q *inputQueue) discard(n *counts) {
	if q.buf != nil {
		q.keepLast(0, n)
	}
	q.rest = false
}

// addInput counts input that has to wait, of a connection that now has total
// bytes of it.
func (n *counts) addInput(added, total int) {
	n.pendingInput.Add(int64(added))
	n.peakInput.Store(max(n.peakInput.Load(), int64(total)))
}
