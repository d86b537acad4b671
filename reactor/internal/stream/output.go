package stream

import (
	"slices"

	"trellis/binlog/journal"
	"trellis/engine"
	"trellis/reactor/internal/buffer"
)

// output is the replies that a client has not taken yet, in order. Behind a reply that waits for a commit
// everything waits. Large bodies are not copied: they stay pinned in the engine until they have been written.
// Its zero value is empty and has no buffer.
type output struct {
	buf *buffer.Buffer // nil while the queue is empty
	at  int            // index in buf of the first byte that was not taken

	bodies []engine.Body // At is an index in buf
	begun  int           // how many bytes of the first body were taken
	pinned int           // bytes of bodies that were not taken

	// While dependsOn is not 0, what lies behind the first firm bytes of buf waits until the journal is
	// committed up to there.
	firm      int
	dependsOn journal.Pos
}

func (q *output) empty() bool { return q.buf == nil }

// len is the number of bytes that have not been taken.
func (q *output) len() int {
	if q.buf == nil {
		return 0
	}
	return len(q.buf.B) - q.at + q.pinned
}

// end is the index in buf up to which the queue may be sent.
func (q *output) end() int {
	if q.dependsOn != 0 {
		return q.firm
	}
	return len(q.buf.B)
}

// sendable reports whether something may be sent now.
func (q *output) sendable() bool { return q.buf != nil && q.at < q.end() }

// pieces appends what may be sent now to dst. It is valid until the queue changes.
func (q *output) pieces(dst [][]byte) [][]byte {
	return appendPieces(dst, q.buf.B[:q.end()], q.at, q.bodies, q.begun)
}

// maxPieces is how many pieces one write takes, on every system.
const maxPieces = 1024

// appendPieces appends what b and bodies hold, from b[at:] on and without the first begun bytes of the first
// body, to dst: as much as one write takes.
func appendPieces(dst [][]byte, b []byte, at int, bodies []engine.Body, begun int) [][]byte {
	for i := range bodies {
		body := &bodies[i]
		if body.At >= len(b) {
			break
		}
		if len(dst)+3 > maxPieces {
			return dst
		}
		if body.At > at {
			dst = append(dst, b[at:body.At])
			at = body.At
		}
		dst = append(dst, body.Bytes[begun:])
		begun = 0
	}
	return append(dst, b[at:]) // never empty: the end of a line follows a body
}

// add appends a copy of b, and bodies whose At is an index in b.
func (q *output) add(b []byte, bodies []engine.Body, n *Counts) {
	before, base := q.len(), 0
	if q.buf != nil {
		base = len(q.buf.B)
	}
	q.buf = buffer.Append(q.buf, b)
	for _, body := range bodies {
		body.At += base
		q.bodies = append(q.bodies, body)
		q.pinned += len(body.Bytes)
	}
	n.addOutput(q.len()-before, q.len())
}

// adopt makes b the contents of an empty queue, without a copy: nobody else may keep b.
func (q *output) adopt(b []byte, n *Counts) {
	q.buf = &buffer.Buffer{B: b}
	n.addOutput(len(b), len(b))
}

// retain adds the replies in out, of which the first n bytes have been written, and empties out.
func (q *output) retain(out *engine.Output, n int, counts *Counts) {
	switch b := out.Buf; {
	case len(out.Bodies) > 0:
		q.add(b, out.Bodies, counts)
		q.sent(n, counts)
		clear(out.Bodies) // they are q's now
		out.Bodies = out.Bodies[:0]
	case cap(b) > keepReplies && q.empty():
		q.adopt(b[n:], counts)
		out.Buf = nil
	default:
		q.add(b[n:], nil, counts)
	}
	Empty(out)
}

// awaitCommit makes what lies behind the first firm bytes of buf wait for a commit up to pos, with what
// already waits.
func (q *output) awaitCommit(firm int, pos journal.Pos) {
	if q.dependsOn == 0 {
		q.firm = firm
	}
	q.dependsOn = max(q.dependsOn, pos)
}

// sent drops the first k bytes, which were written.
func (q *output) sent(k int, n *Counts) {
	n.PendingOutput.Add(int64(-k))
	for k > 0 {
		if len(q.bodies) == 0 || q.bodies[0].At > q.at {
			end := len(q.buf.B)
			if len(q.bodies) > 0 {
				end = q.bodies[0].At
			}
			m := min(k, end-q.at)
			q.at += m
			k -= m
			continue
		}
		body := &q.bodies[0]
		m := min(k, len(body.Bytes)-q.begun)
		q.begun += m
		q.pinned -= m
		k -= m
		if q.begun == len(body.Bytes) {
			body.Release()
			q.bodies = slices.Delete(q.bodies, 0, 1)
			q.begun = 0
		}
	}
	if q.at == len(q.buf.B) {
		q.free()
	}
}

// discardUncommitted drops what waits for a commit.
func (q *output) discardUncommitted(n *Counts) {
	before := q.len()
	for i := len(q.bodies) - 1; i >= 0 && q.bodies[i].At >= q.firm; i-- {
		q.pinned -= len(q.bodies[i].Bytes)
		q.bodies[i].Release()
		q.bodies = slices.Delete(q.bodies, i, i+1)
	}
	q.buf.B = q.buf.B[:q.firm]
	q.dependsOn = 0
	n.PendingOutput.Add(int64(q.len() - before))
	if q.at == q.firm {
		q.free()
	}
}

// unpin copies the bodies in the queue, and releases them.
func (q *output) unpin() {
	b := make([]byte, 0, q.len())
	at, begun := q.at, q.begun
	for i := range q.bodies {
		body := &q.bodies[i]
		b = append(b, q.buf.B[at:body.At]...)
		b = append(b, body.Bytes[begun:]...)
		at, begun = body.At, 0
	}
	b = append(b, q.buf.B[at:]...)
	q.free()
	q.buf = &buffer.Buffer{B: b}
}

// discard empties the queue.
func (q *output) discard(n *Counts) {
	if q.buf != nil {
		n.PendingOutput.Add(int64(-q.len()))
		q.free()
	}
}

func (q *output) free() {
	for i := range q.bodies {
		q.bodies[i].Release()
	}
	buffer.Release(q.buf)
	*q = output{}
}

// addOutput counts replies that are not taken, of a stream that now has total bytes of them.
func (n *Counts) addOutput(added, total int) {
	n.PendingOutput.Add(int64(added))
	n.PeakOutput.Store(max(n.PeakOutput.Load(), int64(total)))
}
