package bench

import (
	"math/rand/v2"
	"testing"
)

func TestSizesFollowTheirDistribution(t *testing.T) {
	for _, c := range []struct {
		text        string
		least, most int
		mean        [2]float64
	}{
		{"100", 100, 100, [2]float64{100, 100}},
		{"10-20", 10, 20, [2]float64{14, 16}},
		{"exp:1000", 0, 20000, [2]float64{900, 1100}},
		{"1*90,1001*10", 1, 1001, [2]float64{70, 130}},
	} {
		z := mustSizes(t, c.text)
		if z.String() != c.text {
			t.Errorf("%q is written as %q", c.text, z)
		}
		sum := 0
		sizes := z.draw(rand.New(rand.NewPCG(1, 2)), 10000)
		for _, n := range sizes {
			if sum += n; n < c.least || n > c.most {
				t.Errorf("%s: %d bytes", c.text, n)
			}
		}
		if mean := float64(sum) / float64(len(sizes)); mean < c.mean[0] || mean > c.mean[1] {
			t.Errorf("%s: a mean of %v bytes", c.text, mean)
		}
	}
	for _, text := range []string{"", "x", "-1", "5-", "20-10", "exp:", "exp:x", "1*0", "1*x", "99999999999", "1*1,x"} {
		if _, err := ParseSizes(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
