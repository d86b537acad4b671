package load

import "testing"

func TestRecorderKeepsEveryDuration(t *testing.T) {
	var r, sum recorder
	for v := range int64(1000) {
		r.add(metricPut, v)
		r.add(metricPut, v)
		r.add(metricDelete, -v) // a clock that went back counts as nothing
		if v == 500 {
			r.cut(v)
		}
	}
	r.add(metricUnit, 1<<62) // more than can be told
	r.cut(1000)
	sum.merge(&r)
	if p, d, u := sum.hists[metricPut], sum.hists[metricDelete], sum.hists[metricUnit]; p.TotalCount() != 2000 || p.Max() != 999 ||
		d.TotalCount() != 1000 || d.Max() != 0 || u.TotalCount() != 1 {
		t.Errorf("got %d to %d, %d to %d, %d", p.TotalCount(), p.Max(), d.TotalCount(), d.Max(), u.TotalCount())
	}
	if len(sum.intervals) != 5 {
		t.Errorf("%d intervals, want 5", len(sum.intervals))
	}
}
