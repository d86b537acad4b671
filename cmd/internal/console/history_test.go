package console

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/console/series"
	"trellis/cmd/internal/operate"
)

func TestRatesAreDifferencesOfCounters(t *testing.T) {
	var tr trend
	at := time.Unix(1_800_000_000, 0)
	tr.add(at, operate.Counts{Puts: 100, Deletes: 50, Ready: 7})
	tr.add(at.Add(time.Second), operate.Counts{Puts: 110, Deletes: 50, Ready: 9})
	tr.add(at.Add(3*time.Second), operate.Counts{Puts: 130, Deletes: 54, Ready: 8})
	tr.add(at.Add(4*time.Second), operate.Counts{Puts: 3, Deletes: 1, Ready: 2}) // another server
	tr.add(at.Add(5*time.Second), operate.Counts{Puts: 4, Deletes: 1, Ready: 2})
	points := tr.points(at.Add(5*time.Second), false)
	var got []string
	for _, p := range points[len(points)-6:] {
		got = append(got, fmt.Sprint(p[series.In], p[series.Out], p[series.Ready]))
	}
	want := "NaN NaN 7,10 0 9,NaN NaN NaN,10 2 8,NaN NaN 2,1 0 2"
	if s := strings.Join(got, ","); s != want {
		t.Errorf("%s, want %s", s, want)
	}
}

func TestATubeTellsHowItsWorkersKeepUp(t *testing.T) {
	r := newRig(t, nil)
	r.put("a", 1, 0, "x")
	at := time.Unix(1_800_000_000, 0)
	r.console.history.ofTube("a", at, false)
	var got []string
	for i := range 3 {
		r.console.measure(t.Context(), at.Add(time.Duration(i)*time.Second))
		p := r.console.history.ofTube("a", at.Add(time.Duration(i)*time.Second), false)[series.Seconds-1]
		got = append(got, fmt.Sprint(p[series.Wait] >= 0, p[series.Busy] >= 0))
		r.hold("a", "y")
	}
	if want := "[false false true true true true]"; fmt.Sprint(got) != want {
		t.Errorf("the waits and what was busy are known: %v, want %s", got, want)
	}
	stock := stockRig(t)
	stock.put("a", 1, 0, "x")
	wantText(t, r.page("/tubes/a"), "Workers", "busy", "Wait for a worker", "timed out")
	wantText(t, stock.page("/tubes/a"), "Workers with nothing to do")
	for want, of := range map[string]*rig{`"limited-by":"none"`: r, `"cmd-delete":0`: stock} {
		if a := of.get(apiRoot + "/tubes/a"); !strings.Contains(a.text, `"current-using":`) || !strings.Contains(a.text, want) {
			t.Errorf("%s %s, want %s", a.Status, a.text, want)
		}
	}
}

func TestWaitsAreInMillisecondsUnlessTheyAreLong(t *testing.T) {
	for wait, want := range map[float32]string{0: "0 ms", 0.0003: "0.3 ms", 0.25: "250 ms", 9.5: "9,500 ms", 12: "12 s", 3600: "3,600 s"} {
		points := []series.Point{series.Unknown(), {series.Wait: wait}}
		p := waitPlot(points, false)
		if got := p.Legend[0].Now + " " + p.Unit; got != want {
			t.Errorf("%v: %s, want %s", wait, got, want)
		}
		if points[1][series.Wait] != wait {
			t.Errorf("the points of the history have become %v", points[1])
		}
	}
}

func TestWhatCannotBeMeasuredIsAGap(t *testing.T) {
	r := newRig(t, nil)
	r.put("a", 1, 0, "x")
	at := time.Unix(1_800_000_000, 0)
	r.console.history.ofTube("a", at, false)
	ready := func(points []series.Point, i int) string { return fmt.Sprint(points[len(points)-1+i][series.Ready]) }
	for i, works := range []bool{true, false, true} {
		dial := r.console.pool.dial
		if !works {
			r.console.pool.close()
			r.console.pool.closed = false
			r.console.pool.dial = failing
		}
		now := at.Add(time.Duration(i) * time.Second)
		r.console.measure(t.Context(), now)
		r.console.pool.dial = dial
		want := map[bool]string{true: "1", false: "NaN"}[works]
		if got := ready(r.console.history.ofServer(now, false), 0); got != want {
			t.Errorf("second %d of the server: %s, want %s", i, got, want)
		}
		if got := ready(r.console.history.ofTube("a", now, false), 0); got != want {
			t.Errorf("second %d of the tube: %s, want %s", i, got, want)
		}
	}
}

func TestTubesThatNobodyLooksAtAreForgotten(t *testing.T) {
	r := newRig(t, nil)
	h := &r.console.history
	at := time.Unix(1_800_000_000, 0)
	for i := range 2 * followedTubes {
		h.ofTube(fmt.Sprintf("t%d", i), at.Add(time.Duration(i)*time.Second), false)
	}
	names := h.followed(at.Add(2 * followedTubes * time.Second))
	if len(names) != followedTubes || strings.Contains(strings.Join(names, " ")+" ", "t0 ") {
		t.Errorf("%d are followed: %v", len(names), names)
	}
	if names := h.followed(at.Add(followTime + 3*followedTubes*time.Second)); len(names) != 0 {
		t.Errorf("%d are followed after a long time", len(names))
	}
}

func TestATableHasTheTubesWithTheMostJobs(t *testing.T) {
	b := tableBuilder{list: new(tubeList)}
	for i := range maxRows + 500 {
		b.add(&operate.Tube{Name: fmt.Sprintf("t%06d", i), Counts: operate.Counts{Ready: int64(i)}, Oldest: -1})
	}
	l := b.end()
	if l.tubes != maxRows+500 || len(l.rows) != maxRows || l.rows[0].Name != "t000500" {
		t.Errorf("%d of %d tubes, from %s", len(l.rows), l.tubes, l.rows[0].Name)
	}
	rows, all := l.find(&tubeQuery{by: sortable["ready"], offset: 1, limit: 2})
	if all != maxRows || rows[0].Ready != maxRows+498 || rows[1].Ready != maxRows+497 {
		t.Errorf("%v of %d", rows, all)
	}
	if rows, all := l.find(&tubeQuery{by: sortable["ready"], reverse: true, filter: "T1004", limit: 2}); all != 100 || rows[0].Name != "t100400" {
		t.Errorf("%v of %d", rows, all)
	}
	if rows, _ := l.find(&tubeQuery{by: sortable["name"], reverse: true, limit: 1}); rows[0].Name != "t100499" {
		t.Errorf("%v", rows)
	}
	if rows, all := l.find(&tubeQuery{by: sortable["name"], offset: 1 << 30, limit: 1}); len(rows) != 0 || all != maxRows {
		t.Errorf("%v of %d", rows, all)
	}
}

func TestATableIsSharedForSomeSeconds(t *testing.T) {
	r := newRig(t, nil)
	r.put("a", 1, 0, "x")
	first, err := r.console.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	age := func(d time.Duration) {
		r.console.table.mu.Lock()
		defer r.console.table.mu.Unlock()
		first.at = time.Now().Add(-d)
		r.console.table.next = time.Time{}
	}
	age(-time.Hour) // so that it is new however slow this test is
	r.put("b", 1, 0, "x")
	if second, err := r.console.list(t.Context()); err != nil || second != first {
		t.Errorf("another table: %v", err)
	}
	age(tableAge)
	if third := r.listAfter(first); third.tubes != 3 {
		t.Errorf("%d tubes", third.tubes)
	}
}

// listAfter waits for another table than old, which may be shown until then.
func (r *rig) listAfter(old *tubeList) *tubeList {
	r.t.Helper()
	for {
		list, err := r.console.list(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		if list != old {
			return list
		}
	}
}

func TestATableIsMadeAnewAfterAChange(t *testing.T) {
	r := newRig(t, writable)
	r.put("a", 1, 0, "x")
	first, err := r.console.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.console.table.mu.Lock()
	first.at = time.Now().Add(time.Hour) // it does not become old
	r.console.table.mu.Unlock()
	r.do("/tubes/a/pause", "seconds", "100")
	if list := r.listAfter(first); list.paused != 1 {
		t.Errorf("%d tubes are paused", list.paused)
	}
}

func failing(context.Context) (*client.Conn, error) { return nil, errors.New("no connection") }
