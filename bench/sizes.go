package bench

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MaxBody is the largest body that the generator makes, in bytes.
const MaxBody = 64 << 20

// Sizes is a distribution of body sizes in bytes. Make one with ParseSizes; the zero value is always 0 bytes.
type Sizes struct {
	text    string
	lo, hi  int
	mean    float64
	weights []weighted
}

type weighted struct {
	size  int
	until float64 // the sum of the weights up to this one
}

// ParseSizes understands "100" (always 100 bytes), "10-1000" (uniform), "exp:500" (exponential with that mean, cut at
// twenty times it) and "100*90,1000*9,60000*1" (sizes with weights). Each size is a number that bytes reads.
func ParseSizes(s string, bytes func(string) (uint64, error)) (Sizes, error) {
	z := Sizes{text: s}
	number := func(t string) (int, error) {
		n, err := bytes(strings.TrimSpace(t))
		if err == nil && n > MaxBody {
			err = fmt.Errorf("want at most %d bytes", MaxBody)
		}
		if err != nil {
			return 0, fmt.Errorf("body size %q: %w", s, err)
		}
		return int(n), nil
	}
	var err error
	switch {
	case strings.HasPrefix(s, "exp:"):
		n, err := number(s[len("exp:"):])
		if err != nil {
			return z, err
		}
		z.mean = float64(n)
		z.hi = min(20*n, MaxBody)
		return z, nil
	case strings.Contains(s, "*"):
		total := 0.0
		for part := range strings.SplitSeq(s, ",") {
			size, weight, _ := strings.Cut(part, "*")
			n, err := number(size)
			if err != nil {
				return z, err
			}
			w, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
			if total += w; err != nil || !(w > 0) || math.IsInf(total, 1) { // w may be NaN
				return z, fmt.Errorf("body size %q: weight %q is not a positive number", s, weight)
			}
			z.weights = append(z.weights, weighted{n, total})
		}
		return z, nil
	case strings.Contains(s, "-"):
		lo, hi, _ := strings.Cut(s, "-")
		if z.lo, err = number(lo); err != nil {
			return z, err
		}
		if z.hi, err = number(hi); err != nil {
			return z, err
		}
		if z.hi < z.lo {
			return z, fmt.Errorf("body size %q: the range is empty", s)
		}
		return z, nil
	}
	z.lo, err = number(s)
	z.hi = z.lo
	return z, err
}

// FixedSize returns the distribution in which every body has n bytes, at most MaxBody.
func FixedSize(n int) Sizes { return Sizes{text: strconv.Itoa(n), lo: n, hi: n} }

// IsZero reports whether the distribution is the zero value, that is, was not set.
func (z Sizes) IsZero() bool { return z.text == "" }

// String returns the text that the distribution was parsed from.
func (z Sizes) String() string { return z.text }

// Fixed returns the size of all bodies, or a negative number when they differ.
func (z *Sizes) Fixed() int {
	if len(z.weights) > 0 || z.mean > 0 || z.lo != z.hi {
		return -1
	}
	return z.lo
}

// Most returns the largest size.
func (z *Sizes) Most() int {
	most := z.hi
	for _, w := range z.weights {
		most = max(most, w.size)
	}
	return most
}

// At returns the size at the quantile u/2^64 of the distribution: evenly spread values of u give sizes as often as the
// distribution has them.
func (z *Sizes) At(u uint64) int {
	part := float64(u>>11) / (1 << 53)
	switch n := len(z.weights); {
	case z.mean > 0:
		return min(int(math.Round(-z.mean*math.Log1p(-part))), z.hi)
	case n > 0:
		part *= z.weights[n-1].until
		for _, w := range z.weights[:n-1] {
			if part < w.until {
				return w.size
			}
		}
		return z.weights[n-1].size
	}
	return z.lo + int(part*float64(z.hi-z.lo+1))
}

// MarshalText returns what String does.
func (z Sizes) MarshalText() ([]byte, error) { return []byte(z.text), nil }
