package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
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
	wantText(t, page, "How old ready jobs are", "since they were put", "≤ 15 m", "over 7 d 0")
	for _, p := range []string{`<svg viewBox="0 0 600 120"`, `<rect class="bar wait"`} {
		if !strings.Contains(page, p) {
			t.Errorf("the page lacks %s", p)
		}
	}
	wantText(t, r.page("/tubes/b"), "How old ready jobs are", "No job is ready.")
	wantText(t, r.page("/tubes/many"), fmt.Sprintf("of the next %s of %s", operate.Count(agesListed), operate.Count(agesListed+5)))
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

// keepAges follows a tube that has these ages for an hour.
func (r *rig) keepAges(tube string, count uint64) {
	h := &r.console.history
	h.ofTube(tube, time.Now(), false)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tubes[tube].ages = agesOf{
		buckets: []Bucket{{UpTo: time.Second, Count: count}, {UpTo: -1}}, listed: int(count), next: time.Now().Add(time.Hour),
	}
}

func TestAgesAreListedAnewAfterAChange(t *testing.T) {
	r := newRig(t, writable)
	r.putMany("a", 3)
	const kept = 77
	r.keepAges("a", kept)
	wantText(t, r.page("/tubes/a"), fmt.Sprintf("up to 1 s %d", kept))
	if page := r.do("/tubes/a/kick", "count", "1"); strings.Contains(plain(page), fmt.Sprintf("up to 1 s %d", kept)) {
		t.Error("the ages are those of before")
	}
}

func TestTheFirstAgesOfATubeAreKept(t *testing.T) {
	r := newRig(t, nil)
	r.putMany("a", 3)
	r.page("/tubes/a")
	if a, _ := r.console.history.beginAges("a", time.Time{}); a.listed != 3 {
		t.Errorf("of %d jobs the ages are kept", a.listed)
	}
}

func TestAgesAreListedByOneAtATime(t *testing.T) {
	r := newRig(t, writable)
	r.putMany("a", 3)
	h := &r.console.history
	now := time.Now()
	h.ofTube("a", now, false)
	_, done := h.beginAges("a", now)
	wantText(t, r.page("/tubes/a"), "How old ready jobs are", "They are being counted.")
	h.changed()
	listed := agesOf{buckets: ages(nil), listed: 77, next: now.Add(2 * time.Hour), soonest: now.Add(time.Hour)}
	done(listed)
	for at, again := range map[time.Duration]bool{time.Hour - 1: false, time.Hour: true} { // as of soonest, for that change
		a, done := h.beginAges("a", now.Add(at))
		if a.listed != 77 || (done != nil) != again {
			t.Errorf("after %v: of %d jobs, to be listed anew: %t", at, a.listed, done != nil)
		}
		if done != nil {
			done(listed)
		}
	}
	if _, done := h.beginAges("a", now.Add(2*time.Hour-1)); done != nil {
		t.Error("ages that nothing has changed since are listed anew too soon")
	}
}
