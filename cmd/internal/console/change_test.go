package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"trellis/cmd/internal/client"
)

// do posts a form that must succeed, and follows to the page that it leads to.
func (r *rig) do(path string, pairs ...string) (page string) {
	r.t.Helper()
	a := r.post(path, values(append(pairs, "confirmed", "yes")...))
	if a.StatusCode != http.StatusSeeOther {
		r.t.Fatalf("POST %s: %s\n%s", path, a.Status, plain(a.text))
	}
	return r.page(a.Header.Get("Location"))
}

// ownID is the id of the test's connection.
func (r *rig) ownID() string {
	r.t.Helper()
	own, err := r.conn.Do(r.t.Context(), "stats-conn", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimPrefix(strings.Split(string(own.Body), "\n")[1], "id: ")
}

func TestAConnectionIsEnded(t *testing.T) {
	r := newRig(t, writable)
	id := r.put("a", 1, 0, "x")
	if _, err := r.conn.ReserveJob(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	number := r.ownID()
	wantText(t, r.page("/connections"), "End")
	wantText(t, r.do("/connections/"+number+"/kick"), "connection "+number+" ended")
	wantText(t, r.page("/jobs/"+fmt.Sprint(id)), "ready")
	if a := r.post("/connections/"+number+"/kick", values()); a.StatusCode != http.StatusNotFound {
		t.Errorf("again: %s", a.Status)
	}
}

func TestFormsDoWhatTheySay(t *testing.T) {
	r := newRig(t, writable)
	ready, delayed, buried := r.put("a/b", 7, 0, "one"), r.put("a/b", 7, 500, "two"), r.bury("a/b", "three")
	job := func(id uint64, verb string) string { return fmt.Sprintf("/jobs/%d/%s", id, verb) }
	wantState := func(id uint64, want string) {
		t.Helper()
		if got := r.state(id); got != want {
			t.Errorf("job %d is %q, want %q", id, got, want)
		}
	}
	wantText(t, r.do(job(ready, "bury")), "1 job buried", "buried")
	wantState(ready, "buried")
	wantText(t, r.do(job(buried, "kick")), "1 job kicked")
	wantState(buried, "ready")
	wantText(t, r.do(job(delayed, "move"), "to", "c"), "1 job moved (to tube c)")
	wantState(delayed, "delayed")
	if n := r.stat("c", "current-jobs-delayed"); n != 1 {
		t.Errorf("%d jobs are delayed in c", n)
	}
	wantText(t, r.do(job(buried, "copy"), "to", "d"), "put as job")
	if n := r.stat("d", "current-jobs-ready"); n != 1 {
		t.Errorf("%d jobs are ready in d", n)
	}
	wantText(t, r.do(job(buried, "delete")), "1 job deleted")
	wantState(buried, "")

	wantText(t, r.do("/tubes/a%2Fb/kick", "count", "10"), "tube a/b 1 job kicked (at most 10)")
	wantState(ready, "ready")
	wantText(t, r.do("/tubes/a%2Fb/move", "state", "ready", "to", "e", "count", "9"), "1 job moved (ready, to tube e, at most 9)")
	wantText(t, r.do("/tubes/e/pause", "seconds", "100"), "Paused: hands out no jobs for another")
	wantText(t, r.do("/tubes/e/pause", "seconds", "0"), "resumed")
	r.put("dying", 1, 0, "x")
	wantText(t, r.do("/tubes/dying/dlq", "attempts", "2", "to", "dead"), "jobs are buried in dead after 2 failed attempts", "have failed 2 times is buried in dead")
	wantText(t, r.page("/failed"), "Dead letters", "dying 2 dead")
	wantText(t, r.do("/tubes/dying/dlq", "attempts", "0", "to", "dead"), "no job is buried for its failed attempts any more")
	if settings, err := r.conn.DeadLetters(t.Context()); err != nil || len(settings) != 0 {
		t.Errorf("%v, %v", settings, err)
	}
	for range 5 {
		r.put("e", 1, 0, "x")
	}
	wantText(t, r.do("/tubes/e/delete", "state", "ready", "count", "2"), "2 jobs deleted")
	wantText(t, r.do("/tubes/e/flush", "view", "tubes"), "4 jobs deleted")

	a, b := r.put("f", 1, 0, "x"), r.put("f", 1, 0, "y")
	both := []string{"id", fmt.Sprint(a), "id", fmt.Sprint(b), "view", "jobs", "tube", "f", "of", "ready"}
	wantText(t, r.do("/jobs/bury", both...), fmt.Sprintf("jobs %d, %d 2 jobs buried", a, b), "No ready jobs.")
	wantText(t, r.do("/jobs/kick", both...), "2 jobs kicked")
	wantText(t, r.do("/jobs/move", append(both, "to", "g")...), "2 jobs moved (to tube g)")
	wantText(t, r.do("/jobs/delete", both[:4]...), "2 jobs deleted")
	wantState(a, "")

	wantText(t, r.do("/put", "to", "h", "pri", "3", "delay", "60", "ttr", "9", "body", "a line\r\nanother"), "put as job")
	job1, err := r.conn.PeekTube(t.Context(), "h", "delayed")
	if err != nil || string(job1.Body) != "a line\nanother" {
		t.Errorf("%q, %v", job1.Body, err)
	}
	wantText(t, r.do("/server/drain"), "takes no new jobs", "New jobs are refused.")
	if a := r.post("/put", values("to", "h", "pri", "3", "delay", "60", "ttr", "9", "body", "x")); a.StatusCode != http.StatusConflict {
		t.Errorf("a put while it drains: %s", a.Status)
	}
	wantText(t, r.do("/server/undrain"), "takes new jobs again", "New jobs are taken.")
}

func TestJobsThatHaveGoneAreLeftOut(t *testing.T) {
	r := newRig(t, writable)
	a := r.put("a", 1, 0, "x")
	wantText(t, r.do("/jobs/delete", "id", fmt.Sprint(a), "id", "999"), "1 job deleted")
	for path, form := range map[string]string{
		"/jobs/delete": "id=998&id=999&confirmed=yes", "/jobs/999/kick": "", "/jobs/999/copy": "to=a", "/tubes/nosuch/flush": "confirmed=yes",
		"/tubes/nosuch/kick": "count=1", "/tubes/nosuch/delete": "state=ready&count=1",
	} {
		if a := r.send(http.MethodPost, path, "application/x-www-form-urlencoded", form, nil); a.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, a.Status)
		}
	}
}

func TestAWorkersJobIsNotTakenFromIt(t *testing.T) {
	r := newRig(t, writable)
	id := r.hold("a", "x")
	for _, verb := range []string{"bury", "delete", "kick"} {
		if a := r.post(fmt.Sprintf("/jobs/%d/%s", id, verb), values("confirmed", "yes")); a.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", verb, a.Status)
		}
	}
	if s := r.state(id); s != "reserved" {
		t.Errorf("the job is %s", s)
	}
	page := r.page(fmt.Sprintf("/jobs/%d", id))
	if strings.Contains(page, "/bury") || strings.Contains(page, "/delete") {
		t.Error("the page offers what cannot be done")
	}
}

func TestWhatIsNotAnOrderIsRefused(t *testing.T) {
	r := newRig(t, writable)
	r.put("a", 1, 0, "x")
	long := strings.Repeat("n", 201)
	for path, forms := range map[string][]string{
		"/tubes/a/kick":                   {"", "count=0", "count=-1", "count=x", "count=4294967296"},
		"/tubes/a/pause":                  {"", "seconds=-1", "seconds=315360001", "seconds=1e3"},
		"/tubes/a/dlq":                    {"", "attempts=3", "attempts=-1&to=b", "attempts=3&to=b c", "attempts=4294967296&to=b"},
		"/tubes/a/move":                   {"state=reserved&to=b&count=1", "state=x&to=b&count=1", "state=ready&to=&count=1", "state=ready&to=b c&count=1", "state=ready&to=-b&count=1", "state=ready&to=" + long + "&count=1"},
		"/tubes/a/delete":                 {"state=&count=1&confirmed=yes", "state=ready&count=0&confirmed=yes"},
		"/tubes/-a/kick":                  {"count=1"},
		"/tubes/a%20b/kick":               {"count=1"},
		"/tubes/a%0d%0ax/kick":            {"count=1"},
		"/tubes/" + long + "/kick":        {"count=1"},
		"/jobs/x/kick":                    {""},
		"/jobs/-1/kick":                   {""},
		"/jobs/18446744073709551616/kick": {""},
		"/jobs/kick":                      {"", "id=x", strings.Repeat("id=1&", 1001)},
		"/put":                            {"to=b&pri=-1&delay=0&ttr=1&body=x", "to=b&pri=1&delay=&ttr=1&body=x", "to=&pri=1&delay=0&ttr=1&body=x", "to=b&pri=1&delay=0&ttr=1&key=a:b&body=x", "to=b&pri=1&delay=0&ttr=1&body=" + strings.Repeat("x", maxPut+1), "to=b&pri=1&delay=0&ttr=1&body=" + strings.Repeat("x", 6*maxPut+maxForm)},
	} {
		for _, form := range forms {
			if a := r.send(http.MethodPost, path, "application/x-www-form-urlencoded", form, nil); a.StatusCode != http.StatusBadRequest {
				t.Errorf("%s with %.60s: %s", path, form, a.Status)
			}
		}
		unchanged(t, r, path)
	}
}

func TestNobodyIsLedToAnotherSite(t *testing.T) {
	r := newRig(t, writable)
	r.put("a", 1, 0, "x")
	for _, view := range []string{"//evil.example", "https://evil.example", "/\\evil.example", "jobs"} {
		a := r.post("/tubes/a/pause", values("seconds", "0", "view", view, "tube", "//evil.example", "of", "x"))
		if to := a.Header.Get("Location"); !strings.HasPrefix(to, "/tubes/") {
			t.Errorf("view %s leads to %s", view, to)
		}
	}
	for q, want := range map[string]string{"12": "/jobs/12", "//evil.example": "/tubes?q=%2F%2Fevil.example", "": "/tubes?q="} {
		if to := r.get("/find?" + values("q", q).Encode()).Header.Get("Location"); to != want {
			t.Errorf("looking for %q leads to %s", q, to)
		}
	}
}

// TestTheLargestBodyIsTakenHoweverItIsWritten puts bodies whose every byte takes as much as possible in the request.
func TestTheLargestBodyIsTakenHoweverItIsWritten(t *testing.T) {
	r := newRig(t, writable)
	r.do("/put", "to", "form", "pri", "1", "delay", "0", "ttr", "1", "body", strings.Repeat("\r\n", maxPut))
	json := func(n int) string {
		return `{"to":"json","pri":1,"ttr":1,"body":"` + strings.Repeat(`\u0001`, n) + `"}`
	}
	if a := r.call("/jobs", json(maxPut)); a.StatusCode != http.StatusOK {
		t.Errorf("%s %.200s", a.Status, a.text)
	}
	if a := r.call("/jobs", json(maxPut+1)); a.StatusCode != http.StatusBadRequest || !strings.Contains(a.text, "a body has at most 1,048,576 bytes here") {
		t.Errorf("%s %.200s", a.Status, a.text)
	}
	for tube, want := range map[string]string{"form": "\n", "json": "\x01"} {
		if j, err := r.conn.PeekTube(t.Context(), tube, client.Ready); err != nil || string(j.Body) != strings.Repeat(want, maxPut) {
			t.Errorf("%s: a body of %d bytes, %v", tube, len(j.Body), err)
		}
	}
}
