package compare

import "testing"

func TestRatiosAreTakenWithinARound(t *testing.T) {
	r := Row{Cells: []Cell{{Values: []float64{10, 20, 40}}, {Values: []float64{5, 20, 80}}}}
	r.finish()
	if c := r.Cells[1]; c.Median != 20 || c.Ratio != 1 || c.RatioLeast != 0.5 || c.RatioMost != 2 {
		t.Errorf("got %+v", c)
	}
}

func TestARatioNeedsAllValues(t *testing.T) {
	f := figure{atLeast: target{ratioBelow, 1}}
	for _, second := range [][]float64{nil, {1}, {1, 0}} {
		r := Row{figure: f, Cells: []Cell{{Values: []float64{2, 2}}, {Values: second}}}
		r.finish()
		if r.Cells[1].Ratio != 0 || r.AtLeast.Met != nil {
			t.Errorf("%v: got %+v", second, r)
		}
	}
}
