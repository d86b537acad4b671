package stream

import (
	"slices"

	"trellis/reactor/internal/buffer"
)

const (
	// ReadSize is how many bytes one read brings at most.
	ReadSize = 64 << 10

	// KeepInput is how many bytes of input may wait to be executed. When there are more, the client is not
	// read any more. Because what a read has brought cannot be refused, and the poller may have input at hand
	// before it is told to pause, up to two reads more are kept.
	KeepInput = 64 << 10

	// MaxInput is how many bytes of input may wait where the poller reads on to the end of the input although
	// reading is paused, as it does with kqueue. A client that sends more is closed.
	MaxInput = 4 << 20
)

// Input is what was read from a client and cannot be executed yet. It takes whatever was read, because that
// cannot be given back; Streams.Supervise stops reading. Its zero value is empty and has no buffer.
type Input struct {
	buf *buffer.Buffer // nil while the queue is empty
	at  int            // where in buf the next command begins
	// repeated is how many of the first bytes were taken out before, and have come back.
	repeated int
	// Rest says that the poller has reported the end of the input without reading all that comes before it:
	// ReadRest reads that.
	Rest bool
}

// Empty reports whether no bytes wait.
func (q *Input) Empty() bool { return q.buf == nil }

// Len is the number of bytes that wait.
func (q *Input) Len() int {
	if q.buf == nil {
		return 0
	}
	return len(q.buf.B) - q.at
}

// Bytes are what waits, of an input that is not empty. They are valid until it changes.
func (q *Input) Bytes() []byte { return q.buf.B[q.at:] }

// New is how many bytes wait that were not taken out before. Bounds are for these: a body that comes back is
// as long as a put may say.
func (q *Input) New() int { return q.Len() - q.repeated }

// full reports whether the client is not to be read for now.
func (q *Input) full() bool { return q.New() >= KeepInput }

// overflowed reports whether the client has sent more than may be kept.
func (q *Input) overflowed() bool { return q.New() >= MaxInput }

// Add copies p to the end.
func (q *Input) Add(p []byte, n *Counts) {
	if q.at > 0 {
		q.buf.B = q.buf.B[:copy(q.buf.B, q.buf.B[q.at:])]
		q.at = 0
	}
	q.buf = buffer.Append(q.buf, p)
	n.addInput(len(p), len(q.buf.B))
}

// Prepend copies the pieces of what was taken out, which may be a large body, to the beginning.
func (q *Input) Prepend(n *Counts, pieces ...[]byte) {
	waits := q.Len()
	if q.buf != nil {
		pieces = append(slices.Clip(pieces), q.Bytes())
	}
	b := &buffer.Buffer{B: slices.Concat(pieces...)}
	if q.buf != nil {
		buffer.Release(q.buf)
	}
	q.buf, q.at = b, 0
	back := len(b.B) - waits
	q.repeated += back
	n.addInput(back, len(b.B))
}

// KeepLast drops all but the last k bytes.
func (q *Input) KeepLast(k int, n *Counts) {
	n.PendingInput.Add(int64(k - q.Len()))
	q.repeated = max(0, q.repeated-(q.Len()-k))
	q.at = len(q.buf.B) - k
	if k == 0 {
		buffer.Release(q.buf)
		q.buf, q.at = nil, 0
	}
}

// Discard empties the queue.
func (q *Input) Discard(n *Counts) {
	if q.buf != nil {
		q.KeepLast(0, n)
	}
	q.Rest = false
}

// addInput counts input that has to wait, of a stream that now has total bytes of it.
func (n *Counts) addInput(added, total int) {
	n.PendingInput.Add(int64(added))
	n.PeakInput.Store(max(n.PeakInput.Load(), int64(total)))
}
