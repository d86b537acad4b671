package stream

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestAnInputQueueGivesBackWhatCameInOrder(t *testing.T) {
	t.Parallel()
	var q Input
	var n Counts
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
			q.Add(p, &n)
			want = append(want, p...)
		} else {
			k := r.IntN(len(want) + 1)
			out := bytes.Clone(want[:k])
			want = want[k:]
			q.KeepLast(len(want), &n)
			if again = max(0, again-k); r.IntN(4) == 0 {
				at := r.IntN(k + 1)
				q.Prepend(&n, out[:at], out[at:])
				want = append(out, want...)
				again += k
			}
		}
		peak = max(peak, len(want))
		if q.Len() != len(want) || q.Empty() != (len(want) == 0) || n.PendingInput.Load() != int64(len(want)) {
			t.Fatalf("%d bytes wait, counted %d, empty %t; want %d", q.Len(), n.PendingInput.Load(), q.Empty(), len(want))
		}
		if len(want) > 0 && !bytes.Equal(q.Bytes(), want) {
			t.Fatal("other bytes wait than were added")
		}
		fresh := len(want) - again
		if q.New() != fresh || q.full() != (fresh >= KeepInput) || q.overflowed() != (fresh >= MaxInput) {
			t.Fatalf("%d bytes, %d of them again: %d are new, full %t, overflowed %t",
				len(want), again, q.New(), q.full(), q.overflowed())
		}
	}
	if got := n.PeakInput.Load(); got != int64(peak) {
		t.Errorf("the peak is %d, want %d", got, peak)
	}
	q.Rest = true
	q.Discard(&n)
	if !q.Empty() || q.Rest || n.PendingInput.Load() != 0 {
		t.Error("something is left after Discard")
	}
}
