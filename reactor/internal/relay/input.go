package relay

import "slices"

const (
	// smallInputSize is more than a worker sends that waits for a job.
	smallInputSize = 56
	// chunkSize is how long a chunk becomes. If a large body were kept in one piece, each growth would be a copy into
	// fresh memory, for which the loop's other clients wait.
	chunkSize = 64 << 10
	// freeInput is how many bytes of a client are kept without being counted as the host's memory.
	freeInput = 16 << 10

	// maxUnusedInputs is how many unused replayInputs a gateway keeps, maxChunkList how many chunks fit into the list of
	// each of them, and maxUnusedChunks how many bytes of unused chunks of each size a gateway keeps.
	maxUnusedInputs = 4096
	maxChunkList    = 8
	maxUnusedChunks = 4 << 20
)

// replayInput is what a client has sent on a trunk and has no answer to, as far as that is kept: the next leader gets
// it again. It is never empty.
type replayInput struct {
	chunks [][]byte // none while small is enough; none is empty
	at, n  int      // where in small or the first chunk it begins, and how long it is
	small  [smallInputSize]byte
}

// bytes is a copy if there are several chunks. It is valid until the input changes.
func (k *replayInput) bytes() []byte {
	switch len(k.chunks) {
	case 0:
		return k.small[k.at : k.at+k.n]
	case 1:
		return k.chunks[0][k.at:]
	}
	return slices.Concat(k.pieces()...)
}

// pieces are the bytes as they lie there. They are valid until the input changes.
func (k *replayInput) pieces() [][]byte {
	if len(k.chunks) == 0 {
		return [][]byte{k.bytes()}
	}
	all := slices.Clone(k.chunks)
	all[0] = all[0][k.at:]
	return all
}

// add copies p to the end.
func (k *replayInput) add(p []byte, m *inputMemory) {
	n := k.n + len(p)
	switch {
	case len(k.chunks) > 0:
		k.append(p, m)
	case k.at+n <= smallInputSize:
		copy(k.small[k.at+k.n:], p)
	case n <= smallInputSize:
		copy(k.small[:], k.bytes())
		copy(k.small[k.n:], p)
		k.at = 0
	default:
		k.chunks = append(k.chunks, m.extend(m.extend(nil, k.bytes()), p))
		k.at = 0
	}
	k.n = n
}

// append copies p behind what is in chunks.
func (k *replayInput) append(p []byte, m *inputMemory) {
	last := len(k.chunks) - 1
	b := k.chunks[last]
	if last == 0 && k.at > len(b)/2 {
		b = b[:copy(b, b[k.at:])]
		k.at = 0
	}
	if len(b)+len(p) > chunkSize {
		k.chunks[last] = b
		k.chunks = append(k.chunks, m.extend(nil, p))
		return
	}
	k.chunks[last] = m.extend(b, p)
}

// keepLast drops all but the last n bytes. There are more.
func (k *replayInput) keepLast(n int, m *inputMemory) {
	k.at, k.n = k.at+k.n-n, n
	done := 0
	for done < len(k.chunks) && (n == 0 || k.at >= len(k.chunks[done])) {
		k.at -= len(k.chunks[done])
		m.free(k.chunks[done])
		done++
	}
	k.chunks = slices.Delete(k.chunks, 0, done)
	if n == 0 {
		k.at = 0
	}
}

// chunkSizes are the capacities of chunks: a client that sends twenty bytes must not hold the memory of one that sent
// 64 KiB.
var chunkSizes = [...]int{2 << 10, freeInput, chunkSize}

// inputMemory is the unused memory of a gateway for what clients have sent.
type inputMemory struct {
	inputs []*replayInput
	chunks [len(chunkSizes)][][]byte
}

// extend appends p to a chunk, nil for a new one, which becomes at most chunkSize long, and returns the chunk that
// holds both.
func (m *inputMemory) extend(b, p []byte) []byte {
	if n := len(b) + len(p); n > cap(b) {
		larger := append(m.chunk(n), b...)
		m.free(b)
		b = larger
	}
	return append(b, p...)
}

// chunk returns an empty chunk for n bytes.
func (m *inputMemory) chunk(n int) []byte {
	for i, size := range chunkSizes {
		if n > size {
			continue
		}
		if last := len(m.chunks[i]) - 1; last >= 0 {
			b := m.chunks[i][last]
			m.chunks[i] = m.chunks[i][:last]
			return b
		}
		return make([]byte, 0, size)
	}
	return make([]byte, 0, n)
}

// free takes a chunk back.
func (m *inputMemory) free(b []byte) {
	if i := slices.Index(chunkSizes[:], cap(b)); i >= 0 && len(m.chunks[i]) < maxUnusedChunks/cap(b) {
		m.chunks[i] = append(m.chunks[i], b[:0])
	}
}

// countedInput is how many of n bytes that are kept of a client are counted as the host's memory.
func countedInput(n int) int { return max(0, n-freeInput) }

// keep keeps what was sent to the leader. If there is no room, nothing that was sent so far can be sent again: nobody
// waits for that, and it matters only if the trunk ends.
func (g *Gateway) keep(f *Client, p []byte) {
	k, m := f.input, &g.memory
	if k == nil {
		if n := len(m.inputs); n > 0 {
			k = m.inputs[n-1]
			m.inputs = m.inputs[:n-1]
		} else {
			k = new(replayInput)
		}
		f.input = k
	}
	if more := countedInput(k.n+len(p)) - countedInput(k.n); more > 0 && !g.host.TakeMemory(more) {
		f.unresumable = f.sent
		g.dropInput(f, 0)
		return
	}
	k.add(p, m)
}

// dropInput drops all but the last n bytes of what is kept of a client.
func (g *Gateway) dropInput(f *Client, n int) {
	k, m := f.input, &g.memory
	if k == nil || n >= k.n && n > 0 {
		return
	}
	if less := countedInput(k.n) - countedInput(n); less > 0 {
		g.host.GiveMemory(less)
	}
	if k.keepLast(n, m); n > 0 {
		return
	}
	if cap(k.chunks) > maxChunkList {
		k.chunks = nil
	}
	if f.input = nil; len(m.inputs) < maxUnusedInputs {
		m.inputs = append(m.inputs, k)
	}
}
