package reactor

import (
	"slices"

	"trellis/reactor/internal/buffer"
)

const (
	// smallKept is more than a worker sends that waits for a job.
	smallKept = 56
	// keptChunk is how long a chunk becomes. If a large body were kept in one piece, each growth would be a copy into
	// fresh memory, for which the loop's other clients wait.
	keptChunk = 64 << 10
	// freeKept is how many bytes of a client are kept without being counted in Config.GatewayMemory.
	freeKept = 16 << 10
	// maxKept is how many unused keptInputs a gateway's loop keeps, and maxKeptChunks how many chunks fit into each
	// of their lists.
	maxKept       = 4096
	maxKeptChunks = 8
)

// keptInput is what a client has sent to a leader and has no answer to, as far as that is kept: the next leader
// gets it again. It is never empty.
type keptInput struct {
	chunks []*buffer.Buffer // none while small is enough; none is empty
	at, n  int              // where in small or the first chunk it begins, and how long it is
	small  [smallKept]byte
}

// bytes is a copy if there are several chunks. It is valid until the input changes.
func (k *keptInput) bytes() []byte {
	switch len(k.chunks) {
	case 0:
		return k.small[k.at : k.at+k.n]
	case 1:
		return k.chunks[0].B[k.at:]
	}
	return slices.Concat(k.pieces()...)
}

// pieces are the bytes as they lie there. They are valid until the input changes.
func (k *keptInput) pieces() [][]byte {
	if len(k.chunks) == 0 {
		return [][]byte{k.bytes()}
	}
	var all [][]byte
	for _, b := range k.chunks {
		all = append(all, b.B)
	}
	all[0] = all[0][k.at:]
	return all
}

// add copies p to the end.
func (k *keptInput) add(p []byte) {
	n := k.n + len(p)
	switch {
	case len(k.chunks) > 0:
		k.append(p)
	case k.at+n <= smallKept:
		copy(k.small[k.at+k.n:], p)
	case n <= smallKept:
		copy(k.small[:], k.bytes())
		copy(k.small[k.n:], p)
		k.at = 0
	default:
		k.chunks = append(k.chunks, buffer.Append(buffer.Append(nil, k.bytes()), p))
		k.at = 0
	}
	k.n = n
}

// append copies p behind what is in chunks.
func (k *keptInput) append(p []byte) {
	last := len(k.chunks) - 1
	b := k.chunks[last]
	if last == 0 && k.at > len(b.B)/2 {
		b.B = b.B[:copy(b.B, b.B[k.at:])]
		k.at = 0
	}
	if len(b.B)+len(p) > keptChunk {
		k.chunks = append(k.chunks, buffer.Append(nil, p))
		return
	}
	k.chunks[last] = buffer.Append(b, p)
}

// keepLast drops all but the last n bytes. There are more.
func (k *keptInput) keepLast(n int) {
	k.at, k.n = k.at+k.n-n, n
	done := 0
	for done < len(k.chunks) && (n == 0 || k.at >= len(k.chunks[done].B)) {
		k.at -= len(k.chunks[done].B)
		buffer.Release(k.chunks[done])
		done++
	}
	k.chunks = slices.Delete(k.chunks, 0, done)
	if n == 0 {
		k.at = 0
	}
}

// beyond is how many of n bytes that are kept of a client are counted in Config.GatewayMemory.
func beyond(n int) int64 { return int64(max(0, n-freeKept)) }

// keep keeps what was sent to the leader. If there is no room, nothing that was sent so far can be sent again: nobody waits for
// that, and it matters only if the trunk ends.
func (f *forward) keep(p []byte) {
	g := f.conn.loop.gateway
	k := f.kept
	if k == nil {
		if n := len(g.unkept); n > 0 {
			k = g.unkept[n-1]
			g.unkept = g.unkept[:n-1]
		} else {
			k = new(keptInput)
		}
		f.kept = k
	}
	if more := beyond(k.n+len(p)) - beyond(k.n); more > 0 && !g.loop.server.takeMemory(more) {
		f.lost = f.sent
		f.dropKept(0)
		return
	}
	k.add(p)
}

// dropKept drops all but the last n bytes of what is kept.
func (f *forward) dropKept(n int) {
	k := f.kept
	if k == nil || n >= k.n && n > 0 {
		return
	}
	g := f.conn.loop.gateway
	if less := beyond(k.n) - beyond(n); less > 0 {
		g.loop.server.widened.Add(-less)
	}
	if k.keepLast(n); n > 0 {
		return
	}
	if cap(k.chunks) > maxKeptChunks {
		k.chunks = nil
	}
	if f.kept = nil; len(g.unkept) < maxKept {
		g.unkept = append(g.unkept, k)
	}
}

// takeMemory counts n bytes more in Config.GatewayMemory, if there is room.
func (s *Server) takeMemory(n int64) bool {
	if s.widened.Add(n) > s.cfg.GatewayMemory {
		s.widened.Add(-n)
		return false
	}
	return true
}
