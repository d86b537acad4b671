package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"trellis/cmd/internal/client"
)

// putMany puts so many small jobs into a tube.
func (r *rig) putMany(tube string, n int) {
	r.t.Helper()
	command := func(i int) client.Command {
		if i == 0 {
			return client.Command{Line: "use " + tube}
		}
		return client.Command{Line: "put 1 0 60 1", Body: []byte("x")}
	}
	if err := r.conn.Pipeline(r.t.Context(), n+1, command, func(int, client.Reply) error { return nil }); err != nil {
		r.t.Fatal(err)
	}
}

func TestAgesAreSortedIntoBuckets(t *testing.T) {
	var jobs []client.Fields
	for _, age := range []string{"0", "1", "2", "5", "6", "60", "61", "604800", "604801", "18446744073709551615", "nonsense"} {
		jobs = append(jobs, client.Fields{{Key: "age", Value: client.Value{Kind: client.Number, Text: age}}})
	}
	var got []string
	for _, b := range ages(jobs) {
		got = append(got, fmt.Sprintf("%v:%d", b.UpTo, b.Count))
	}
	want := "1s:3 5s:2 15s:1 1m0s:1 5m0s:1 15m0s:0 1h0m0s:0 6h0m0s:0 24h0m0s:0 168h0m0s:1 -1ns:2"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("%s, want %s", s, want)
	}
}

func TestATubeShowsHowOldItsReadyJobsAre(t *testing.T) {
	r := newRig(t, nil)
	r.putMany("a", 3)
	r.put("b", 1, 1000, "x")
	r.putMany("many", agesListed+5)
	page := r.page("/tubes/a")
	wantText(t, page, "How old ready jobs are", "since they were put", "≤ 15 m", "over 7 d 0 h 0")
	for _, p := range []string{`<svg viewBox="0 0 600 120"`, `<rect class="bar wait"`} {
		if !strings.Contains(page, p) {
			t.Errorf("the page lacks %s", p)
		}
	}
	wantText(t, r.page("/tubes/b"), "How old ready jobs are", "No job is ready.")
	wantText(t, r.page("/tubes/many"), fmt.Sprintf("of the next %s of %s", number(agesListed), number(agesListed+5)))
	if page := stockRigWith(t, "a").page("/tubes/a"); strings.Contains(page, "How old ready jobs are") {
		t.Error("of a server without lists there are ages")
	}
}

// stockRigWith is a stock rig with a job.
func stockRigWith(t *testing.T, tube string) *rig {
	t.Helper()
	r := stockRig(t)
	r.put(tube, 1, 0, "x")
	return r
}

func TestAgesAreListedAnewAfterAChange(t *testing.T) {
	r := newRig(t, writable)
	r.putMany("a", 3)
	r.page("/tubes/a") // it is followed from now on
	const kept = 77
	r.console.history.keepAges("a", agesOf{
		buckets: []Bucket{{UpTo: time.Second, Count: kept}, {UpTo: -1}}, listed: kept, next: time.Now().Add(time.Hour),
	})
	wantText(t, r.page("/tubes/a"), fmt.Sprintf("up to 1 s %d", kept))
	if page := r.do("/tubes/a/kick", "count", "1"); strings.Contains(plain(page), fmt.Sprintf("up to 1 s %d", kept)) {
		t.Error("the ages are those of before")
	}
}
