package reactor

import "github.com/valyala/bytebufferpool"

const (
	// smallKept is more than a worker sends that waits for a job.
	smallKept = 56
	// freeKept is how many bytes of a client are kept without being counted in Config.GatewayMemory.
	freeKept = 16 << 10
	// maxKept is how many unused keptInputs a gateway's loop keeps.
	maxKept = 4096
)

// keptInput is what a client has sent to a leader and has no answer to, as far as that is kept: the next leader
// gets it again. It is never empty.
type keptInput struct {
	large *bytebufferpool.ByteBuffer // nil while small is enough
	at, n int                        // where in small or large it begins, and how long it is
	small [smallKept]byte
}

func (k *keptInput) bytes() []byte {
	if k.large != nil {
		return k.large.B[k.at:]
	}
	return k.small[k.at : k.at+k.n]
}

// add copies p to the end.
func (k *keptInput) add(p []byte) {
	n := k.n + len(p)
	switch {
	case k.large != nil:
		if b := k.large; k.at > len(b.B)/2 {
			b.B = b.B[:copy(b.B, b.B[k.at:])]
			k.at = 0
		}
		k.large = appendPooled(k.large, p)
	case k.at+n <= smallKept:
		copy(k.small[k.at+k.n:], p)
	case n <= smallKept:
		copy(k.small[:], k.bytes())
		copy(k.small[k.n:], p)
		k.at = 0
	default:
		k.large = appendPooled(appendPooled(nil, k.bytes()), p)
		k.at = 0
	}
	k.n = n
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
	if n > 0 {
		k.at, k.n = k.at+k.n-n, n
		return
	}
	if k.large != nil {
		release(k.large)
	}
	k.large, k.at, k.n = nil, 0, 0
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
