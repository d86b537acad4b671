package compare

import (
	"testing"

	"trellis/bench/internal/quantity"
)

func TestTargets(t *testing.T) {
	f := figure{unit: quantity.Bytes}
	for _, c := range []struct {
		target       target
		value, ratio float64
		want         string
	}{
		{target{ratioBelow, 0.8}, 100, 0.8, "ratio ≤ 0.80: yes"},
		{target{ratioBelow, 0.8}, 0, 0.81, "ratio ≤ 0.80: no"},
		{target{ratioBelow, 0.8}, 100, 0, "ratio ≤ 0.80"},
		{target{ratioAbove, 12}, 0, 12.1, "ratio ≥ 12.0: yes"},
		{target{ratioAbove, 12}, 100, 11, "ratio ≥ 12.0: no"},
		{target{valueBelow, 220}, 219, 9, "≤ 220 B: yes"},
		{target{valueBelow, 220}, 221, 0, "≤ 220 B: no"},
		{target{valueBelow, 220}, 0, 1, "≤ 220 B"},
		{target{valueAbove, 2}, 3, 0, "≥ 2 B: yes"},
		{target{valueAbove, 2}, 1, 2, "≥ 2 B: no"},
		{target{}, 1, 1, ""},
	} {
		if got := f.judge(c.target, c.value, c.ratio).String(); got != c.want {
			t.Errorf("%+v: value %v, ratio %v: got %q, want %q", c.target, c.value, c.ratio, got, c.want)
		}
	}
}
