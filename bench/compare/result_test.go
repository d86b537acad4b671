package compare

import "testing"

func TestRatiosAreTakenWithinARound(t *testing.T) {
	r := Row{Cells: []Cell{{Values: []float64{10, 20, 40}}, {Values: []float64{5, 20, 80}}}}
	r.finish(3)
	if c := r.Cells[1]; c.Median != 20 || c.Ratio != 1 || c.RatioLeast != 0.5 || c.RatioMost != 2 {
		t.Errorf("got %+v", c)
	}
}

func TestTheLastServerIsComparedWithEachOther(t *testing.T) {
	r := Row{figure: figure{atLeast: target{ratioBelow, 1}}, Cells: []Cell{
		{Values: []float64{10, 20, 40}}, {Values: []float64{5, 20, 10}}, {Values: []float64{1, 0, 1}}, {Values: []float64{10, 10, 10}},
	}}
	r.finish(3)
	want := []*Ratio{{0.5, 0.25, 1}, {1, 0.5, 2}, nil, nil}
	for i, w := range want {
		if got := r.Cells[i].Last; (got == nil) != (w == nil) || got != nil && *got != *w {
			t.Errorf("server %d: got %+v, want %+v", i, got, w)
		}
	}
	if r.AtLeast.Met == nil || !*r.AtLeast.Met {
		t.Errorf("the target holds for the ratio to the first server: got %v", r.AtLeast)
	}
}

func TestARatioNeedsAllValues(t *testing.T) {
	f := figure{atLeast: target{ratioBelow, 1}}
	for _, second := range [][]float64{nil, {1}, {1, 0}} {
		r := Row{figure: f, Cells: []Cell{{Values: []float64{2, 2}}, {Values: second}}}
		r.finish(2)
		if r.Cells[1].Ratio != 0 || r.AtLeast.Met != nil {
			t.Errorf("%v: got %+v", second, r)
		}
	}
}

// One server was not measured in the first round and the other one in the second.
func TestARatioIsNotTakenOfDifferentRounds(t *testing.T) {
	r := Row{figure: figure{atLeast: target{ratioBelow, 1}}, Cells: []Cell{{Values: []float64{20, 40}}, {Values: []float64{5, 80}}}}
	r.finish(3)
	if c := r.Cells[1]; c.Ratio != 0 || r.Cells[0].Last != nil || r.AtLeast.Met != nil || c.Median != 42.5 {
		t.Errorf("got %+v", r)
	}
}
