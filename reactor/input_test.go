package reactor

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"trellis/reactor/internal/buffer"
)

func TestAnInputQueueGivesBackWhatCameInOrder(t *testing.T) {
	t.Parallel()
	var q inputQueue
	var n counts
	r := rand.New(rand.NewPCG(1, 2))
	var want []byte
	next, peak, again := byte(0), 0, 0
	for range 2000 {
		if len(want) == 0 || r.IntN(3) > 0 {
			p := make([]byte, 1+r.IntN(3000))
			for i := range p {
				p[i] = next
				next++
			}
			if q.empty() && r.IntN(4) == 0 {
				q.adopt(&buffer.Buffer{B: bytes.Clone(p)}, &n)
			} else {
				q.add(p, &n)
			}
			want = append(want, p...)
		} else {
			k := r.IntN(len(want) + 1)
			out := bytes.Clone(want[:k])
			want = want[k:]
			q.keepLast(len(want), &n)
			if again = max(0, again-k); r.IntN(4) == 0 {
				at := r.IntN(k + 1)
				q.prepend(&n, out[:at], out[at:])
				want = append(out, want...)
				again += k
			}
		}
		peak = max(peak, len(want))
		if q.len() != len(want) || q.empty() != (len(want) == 0) || n.pendingInput.Load() != int64(len(want)) {
			t.Fatalf("%d bytes wait, counted %d, empty %t; want %d", q.len(), n.pendingInput.Load(), q.empty(), len(want))
		}
		if len(want) > 0 && !bytes.Equal(q.bytes(), want) {
			t.Fatal("other bytes wait than were added")
		}
		if news := len(want) - again; q.news() != news || q.full() != (news >= keepInput) || q.overflowed() != (news >= inputCap) {
			t.Fatalf("%d bytes, %d of them again: %d news, full %t, overflowed %t", len(want), again, q.news(), q.full(), q.overflowed())
		}
	}
	if got := n.peakInput.Load(); got != int64(peak) {
		t.Errorf("the peak is %d, want %d", got, peak)
	}
	q.rest = true
	q.discard(&n)
	if !q.empty() || q.rest || n.pendingInput.Load() != 0 {
		t.Error("something is left after drop")
	}
}
