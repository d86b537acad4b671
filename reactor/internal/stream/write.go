package stream

import (
	"slices"

	"golang.org/x/sys/unix"

	"trellis/engine"
)

const (
	// HighWater is how many bytes of replies are collected before they are sent although there are more
	// commands to execute.
	HighWater = 256 << 10

	// keepReplies is the largest capacity in bytes that an Output keeps from one batch to the next.
	keepReplies = 1 << 20
)

// Size is the number of bytes of the replies in out, bodies included.
func Size(out *engine.Output) int {
	n := len(out.Buf)
	for i := range out.Bodies {
		n += len(out.Bodies[i].Bytes)
	}
	return n
}

// Empty drops the replies in out, and releases their bodies.
func Empty(out *engine.Output) {
	if cap(out.Buf) > keepReplies {
		out.Buf = nil
	}
	out.Discard()
}

// Skip drops up to n bytes from the beginning of the replies in out, and returns how many.
func Skip(out *engine.Output, n int) (skipped int) {
	n = min(n, Size(out))
	for skipped < n {
		m := n - skipped
		if len(out.Bodies) > 0 && out.Bodies[0].At == 0 {
			b := &out.Bodies[0]
			m = min(m, len(b.Bytes))
			if b.Bytes = b.Bytes[m:]; len(b.Bytes) == 0 {
				b.Release()
				out.Bodies = slices.Delete(out.Bodies, 0, 1)
			}
		} else {
			if len(out.Bodies) > 0 {
				m = min(m, out.Bodies[0].At)
			}
			out.Buf = out.Buf[:copy(out.Buf, out.Buf[m:])]
			for i := range out.Bodies {
				out.Bodies[i].At -= m
			}
		}
		skipped += m
	}
	if n > 0 && len(out.Buf) == 0 {
		Empty(out)
	}
	return skipped
}

// BytesCost is the cost of copying n bytes, in units of the engine's.
func BytesCost(n int) int { return n >> 10 }

// Sending is what has become of replies.
type Sending uint8

// What becomes of replies.
const (
	Sent  Sending = iota // the client has taken all, or the system in its place
	Kept                 // some of them are pending
	Waits                // they are pending, and wait for a commit
	Lost                 // the client is gone: nothing more is to be sent
)

// Send sends the replies in out, which are size bytes, or makes them pending behind what is. It empties out. With
// waits, they are not sent before the journal is committed up to out.Pos, nor are they before what waits for
// a commit already.
func (ss *Streams) Send(s *Stream, out *engine.Output, size int, waits bool) Sending {
	if waits || s.Owes() {
		q, pos, firm := &ss.needPending(s).out, out.Pos, 0
		if q.buf != nil {
			firm = len(q.buf.B)
		}
		q.retain(out, 0, &ss.Counts)
		if !waits && q.dependsOn == 0 {
			return Kept
		}
		q.awaitCommit(firm, pos)
		return Waits
	}
	ss.pieces = appendPieces(ss.pieces[:0], out.Buf, 0, out.Bodies, 0)
	n, ok := ss.write(s, ss.pieces, size)
	switch {
	case !ok:
		Empty(out)
		return Lost
	case n < size:
		ss.needPending(s).out.retain(out, n, &ss.Counts)
		return Kept
	}
	Empty(out)
	return Sent
}

// Deliver sends p as Send does, without a wait. It reports false when the client is gone.
func (ss *Streams) Deliver(s *Stream, p []byte) (ok bool) {
	n := 0
	if !s.Owes() {
		ss.pieces = append(ss.pieces[:0], p)
		if n, ok = ss.write(s, ss.pieces, len(p)); !ok {
			return false
		}
	}
	if n < len(p) {
		ss.needPending(s).out.add(p[n:], nil, &ss.Counts)
	}
	return true
}

// SendPending sends what is pending and may be sent. It returns how many bytes were taken, and reports false when
// the client is gone.
func (ss *Streams) SendPending(s *Stream) (n int, ok bool) {
	q := &s.pending.out
	if !q.sendable() {
		return 0, true // all of it waits for a commit
	}
	ss.pieces = q.pieces(ss.pieces[:0])
	if n, ok = ss.write(s, ss.pieces, q.len()); n > 0 && ok {
		q.sent(n, &ss.Counts)
	}
	return n, ok
}

// Sendable reports whether the client is owed something that could be sent now.
func (ss *Streams) Sendable(s *Stream) bool {
	return s.pending != nil && s.pending.out.sendable() || s.kind == OnTLS && ss.cfg.Owner.TLS(s).held != nil
}

// write writes what the client takes at once of pieces, which begin with the pending output if there is any, and
// changes them. owed is how many bytes the client is owed in all. It reports false when the client is gone.
func (ss *Streams) write(s *Stream, pieces [][]byte, owed int) (n int, ok bool) {
	switch {
	case s.kind == OnTLS:
		return ss.cfg.Owner.TLS(s).send(ss, s, pieces)
	case s.kind == OnTrunk:
		return ss.cfg.Owner.Channel(s).send(ss, s, pieces, owed)
	case len(pieces) == 1:
		return ss.writeSocket(s, pieces[0])
	}
	for {
		n, err := writev(int(s.fd), pieces)
		if err != unix.EINTR {
			return ss.wrote(n, err)
		}
	}
}

// writeSocket writes what the socket takes at once.
func (ss *Streams) writeSocket(s *Stream, b []byte) (n int, ok bool) {
	for {
		n, err := Write(int(s.fd), b)
		if err != unix.EINTR {
			return ss.wrote(n, err)
		}
	}
}

// wrote takes the result of a write.
func (ss *Streams) wrote(n int, err error) (int, bool) {
	switch err {
	case nil:
		ss.Counts.BytesOut.Add(uint64(n))
		ss.Engine.Spend(BytesCost(n))
		return n, true
	case unix.EAGAIN:
		return 0, true
	}
	return 0, false
}

// gather takes the bytes that are sealed, or sent over a trunk, next from pieces, which hold some: up to most. It
// returns the rest, and changes pieces.
func (ss *Streams) gather(pieces [][]byte, most int) (chunk []byte, rest [][]byte) {
	if first := pieces[0]; len(pieces) == 1 || len(first) >= most {
		chunk = first[:min(len(first), most)]
		return chunk, skip(pieces, len(chunk))
	}
	// Small pieces go together: a record, or an item, of its own for each would be dear.
	ss.gathered = ss.gathered[:0]
	for _, p := range pieces {
		ss.gathered = append(ss.gathered, p[:min(len(p), most-len(ss.gathered))]...)
		if len(ss.gathered) == most {
			break
		}
	}
	return ss.gathered, skip(pieces, len(ss.gathered))
}

// skip drops the first n bytes of pieces, and changes pieces.
func skip(pieces [][]byte, n int) [][]byte {
	for len(pieces) > 0 && n >= len(pieces[0]) {
		n -= len(pieces[0])
		pieces = pieces[1:]
	}
	if n > 0 {
		pieces[0] = pieces[0][n:]
	}
	return pieces
}
