package reactor

import (
	"slices"

	"trellis/binlog/journal"
	"trellis/engine"
	"trellis/reactor/internal/buffer"
)

// highWater is how many bytes of replies are collected before they are written
// although there are more commands to execute.
const highWater = 256 << 10

// outputQueue is the replies that a client has not taken yet, in order. Behind a
// reply that waits for a commit everything waits. Large bodies are not copied: they
// stay pinned in the engine until they have been written. Its zero value is empty
// and has no buffer.
type outputQueue struct {
	buf *buffer.Buffer // nil while the queue is empty
	at  int            // index in buf of the first byte that was not taken

	bodies []engine.Body // At is an index in buf
	begun  int           // how many bytes of the first body were taken
	pinned int           // bytes of bodies that were not taken

	// While dependsOn is not 0, what lies behind the first firm bytes of buf waits until
	// the journal is committed up to there.
	firm      int
	dependsOn journal.Pos
}

func (q *outputQueue) empty() bool { return q.buf == nil }

// len is the number of bytes that have not been taken.
func (q *outputQueue) len() int {
	if q.buf == nil {
		return 0
	}
	return len(q.buf.B) - q.at + q.pinned
}

// uncommitted tells whether a part of the queue waits for a commit.
func (q *outputQueue) uncommitted() bool { return q.dependsOn != 0 }

// end is the index in buf up to which the queue may be sent.
func (q *outputQueue) end() int {
	if q.dependsOn != 0 {
		return q.firm
	}
	return len(q.buf.B)
}

// sendable tells whether something may be sent now.
func (q *outputQueue) sendable() bool { return q.buf != nil && q.at < q.end() }

// pieces appends what may be sent now to dst. It is valid until the queue changes.
func (q *outputQueue) pieces(dst [][]byte) [][]byte {
	return appendPieces(dst, q.buf.B[:q.end()], q.at, q.bodies, q.begun)
}

// maxPieces is how many pieces one write takes, on every system.
const maxPieces = 1024

// appendPieces appends what b and bodies hold, from b[at:] on and without the first
// begun bytes of the first body, to dst: as much as one write takes.
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
func (q *outputQueue) add(b []byte, bodies []engine.Body, n *counts) {
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
func (q *outputQueue) adopt(b []byte, n *counts) {
	q.buf = &buffer.Buffer{B: b}
	n.addOutput(len(b), len(b))
}

// awaitCommit makes what lies behind the first firm bytes of buf wait for a commit up to
// pos, with what already waits.
func (q *outputQueue) awaitCommit(firm int, pos journal.Pos) {
	if q.dependsOn == 0 {
		q.firm = firm
	}
	q.dependsOn = max(q.dependsOn, pos)
}

// committed lets everything be written.
func (q *outputQueue) committed() { q.dependsOn = 0 }

// sent drops the first k bytes, which were written.
func (q *outputQueue) sent(k int, n *counts) {
	n.pendingOutput.Add(int64(-k))
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
func (q *outputQueue) discardUncommitted(n *counts) {
	before := q.len()
	for i := len(q.bodies) - 1; i >= 0 && q.bodies[i].At >= q.firm; i-- {
		q.pinned -= len(q.bodies[i].Bytes)
		q.bodies[i].Release()
		q.bodies = slices.Delete(q.bodies, i, i+1)
	}
	q.buf.B = q.buf.B[:q.firm]
	q.dependsOn = 0
	n.pendingOutput.Add(int64(q.len() - before))
	if q.at == q.firm {
		q.free()
	}
}

// discard empties the queue.
func (q *outputQueue) discard(n *counts) {
	if q.buf != nil {
		n.pendingOutput.Add(int64(-q.len()))
		q.free()
	}
}

func (q *outputQueue) free() {
	releaseBodies(q.bodies)
	buffer.Release(q.buf)
	*q = outputQueue{}
}

// releaseBodies gives bodies back and forgets them.
func releaseBodies(bodies []engine.Body) {
	for i := range bodies {
		bodies[i].Release()
	}
	clear(bodies)
}

// addOutput counts replies that are not taken, of a connection that now has total
// bytes of them.
func (n *counts) addOutput(added, total int) {
	n.pendingOutput.Add(int64(added))
	n.peakOutput.Store(max(n.peakOutput.Load(), int64(total)))
}
