package load

import "testing"

func TestSizesFollowTheirDistribution(t *testing.T) {
	for _, c := range []struct {
		text        string
		least, most int
		mean        [2]float64
	}{
		{"100", 100, 100, [2]float64{100, 100}},
		{"10-20", 10, 20, [2]float64{14.9, 15.1}},
		{"exp:1000", 0, 20000, [2]float64{990, 1010}},
		{"1*90,1001*10", 1, 1001, [2]float64{100, 102}},
	} {
		z := mustSizes(t, c.text)
		if z.String() != c.text {
			t.Errorf("%q is written as %q", c.text, z)
		}
		sum := 0
		const jobs = 10000
		b := newBodies(z, 1)
		for seq := range uint64(jobs) {
			n := b.size(seq)
			if sum += n; n < c.least || n > c.most {
				t.Errorf("%s: %d bytes", c.text, n)
			}
		}
		if mean := float64(sum) / jobs; mean < c.mean[0] || mean > c.mean[1] {
			t.Errorf("%s: a mean of %v bytes", c.text, mean)
		}
	}
}

func TestARareSizeComesAsOftenAsItsWeightSays(t *testing.T) {
	for seed := range uint64(20) {
		b := newBodies(mustSizes(t, "100*9999,60000*1"), seed)
		for from := uint64(0); from < 1e6; from += 1e5 {
			n := 0
			for seq := range uint64(1e5) {
				if b.size(from+seq) == 60000 {
					n++
				}
			}
			if n < 8 || n > 12 {
				t.Errorf("seed %d: %d of 100,000 jobs from %d, want 10", seed, n, from)
			}
		}
	}
}

func TestBodiesAreRecognised(t *testing.T) {
	for _, text := range []string{"0", "1", "7", "8", "9", "100", "0-300", "exp:50", "3*1,500*1"} {
		z := mustSizes(t, text)
		b, other := newBodies(z, 1), newBodies(z, 2)
		for seq := range uint64(2000) {
			p := b.append(nil, seq, b.size(seq))
			got, ok := b.check(p)
			if !ok || len(p) >= headerSize && got != seq || len(p) < headerSize && got != noSeq {
				t.Fatalf("%s: body %d of %d bytes: got %d, %v", text, seq, len(p), got, ok)
			}
			if len(p) == 0 {
				continue
			}
			if len(p) > 2*headerSize { // with fewer, chance may have it
				if _, ok := other.check(p); ok {
					t.Errorf("%s: body %d of one run is taken for another's", text, seq)
				}
			}
			for _, at := range []int{0, len(p) / 2, len(p) - 1} {
				p[at] ^= 0x80
				if got, ok := b.check(p); ok && got == seq {
					t.Errorf("%s: body %d is accepted with byte %d changed", text, seq, at)
				}
				p[at] ^= 0x80
			}
		}
	}
}
