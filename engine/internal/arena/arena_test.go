package arena

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestEveryLengthFitsItsClassAndNoneIsWasteful(t *testing.T) {
	prev := -1
	for n := uint32(1); n <= largest; n++ {
		c := class(n)
		if c < prev || c >= numClasses {
			t.Fatalf("length %d has class %d after %d", n, c, prev)
		}
		prev = c
		size := classSize(c)
		if uint32(size) < n || size%fineStep != 0 {
			t.Fatalf("length %d got a block of %d", n, size)
		}
		if waste := size - int(n); waste >= fineStep && waste > int(n)/8+1 {
			t.Fatalf("length %d wastes %d bytes", n, waste)
		}
	}
	if prev != numClasses-1 {
		t.Fatalf("last class in use is %d of %d", prev, numClasses)
	}
}

func TestBodiesKeepTheirBytesWhateverIsFreedAroundThem(t *testing.T) {
	var s Bodies
	type body struct {
		ref  Ref
		want []byte
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var live []body
	steps := 5000
	if proof {
		steps = 20_000
	}
	for range steps {
		if len(live) > 0 && rnd.IntN(3) == 0 {
			i := rnd.IntN(len(live))
			b := live[i]
			if !bytes.Equal(s.Bytes(b.ref, uint32(len(b.want))), b.want) {
				t.Fatalf("body of %d bytes changed", len(b.want))
			}
			s.Free(b.ref, uint32(len(b.want)))
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
			continue
		}
		n := rnd.Uint32N(300)
		switch rnd.IntN(50) {
		case 0:
			n = rnd.Uint32N(largest + 1)
		case 1:
			n = largest + 1 + rnd.Uint32N(10_000)
		}
		ref, err := s.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		b := s.Bytes(ref, n)
		if len(b) != int(n) {
			t.Fatalf("asked for %d bytes, got %d", n, len(b))
		}
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		live = append(live, body{ref, bytes.Clone(b)})
	}
	for _, b := range live {
		if !bytes.Equal(s.Bytes(b.ref, uint32(len(b.want))), b.want) {
			t.Fatalf("body of %d bytes changed", len(b.want))
		}
		s.Free(b.ref, uint32(len(b.want)))
	}
	for i := range s.classes {
		if p := &s.classes[i]; p.Live() != 0 || p.size != 0 && p.Mapped() > int64(pageRound(int(p.size)<<p.shift)) {
			t.Fatalf("class %d: %d live blocks, %d bytes mapped after all was freed", i, p.Live(), p.Mapped())
		}
	}
	if s.mapped != 0 {
		t.Fatalf("%d bytes of large bodies still mapped", s.mapped)
	}
}

func TestSlabReusesTheLowestBlockAndNamesAreDense(t *testing.T) {
	s := NewSlab[[8]uint64]()
	const n = 10_000
	for i := range n {
		r, err := s.Alloc()
		if err != nil {
			t.Fatal(err)
		}
		if r != Ref(i+1) {
			t.Fatalf("block %d is named %d", i, r)
		}
		s.At(r)[7] = uint64(r)
	}
	for _, r := range []Ref{9000, 17, 4000} {
		s.Free(r)
	}
	for _, want := range []Ref{17, 4000, 9000, n + 1} {
		if r, _ := s.Alloc(); r != want {
			t.Fatalf("got block %d, want %d", r, want)
		}
	}
	if s.At(n)[7] != n {
		t.Fatal("a block changed")
	}
}

func TestFreeingABlockTwicePanics(t *testing.T) {
	p := NewPool(64)
	r, _ := p.Alloc()
	p.Free(r)
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	p.Free(r)
}

func BenchmarkSlabAllocFree(b *testing.B) {
	s := NewSlab[[8]uint64]()
	b.ReportAllocs()
	for b.Loop() {
		r, _ := s.Alloc()
		s.Free(r)
	}
}

func BenchmarkBodyAllocFree(b *testing.B) {
	var s Bodies
	b.ReportAllocs()
	for b.Loop() {
		r, _ := s.Alloc(100)
		s.Free(r, 100)
	}
}

// A system's pages may be larger than what is given back at a time.
func TestMemoryIsGivenBackInWholePages(t *testing.T) {
	for !GiveBack(1 << 30) { // what other tests have left
	}
	var s Bodies
	const n = 1 << 20
	r, err := s.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	clear(s.Bytes(r, n))
	s.Free(r, n)
	calls := 1
	for !GiveBack(pageSize/2 + 1) {
		calls++
	}
	if calls > n/pageSize+1 {
		t.Errorf("%d calls for %d pages", calls, n/pageSize)
	}
}
