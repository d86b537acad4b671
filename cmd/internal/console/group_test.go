package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestAGroupIsShownAsFarAsItIs(t *testing.T) {
	r := newRig(t, nil)
	ctx := t.Context()
	const page, api = "/groups/import%2F1", apiRoot + "/groups/import%2F1"
	for _, path := range []string{page, api} {
		if a := r.get(path); a.StatusCode != http.StatusNotFound {
			t.Errorf("%s of a group that is not there: %s", path, a.Status)
		}
	}
	first, second := r.tagged("a", "grp:import/1"), r.tagged("b", "grp:import/1")
	r.tagged("c", "aft:import/1")
	wantText(t, r.page(page), "Group / import/1", "Pending 2", "Buried 0", "Waiting 1")
	if a := r.get(api); !strings.Contains(a.text, `"pending":2,"buried":0,`) || !strings.Contains(a.text, `"waiting-jobs":1`) {
		t.Errorf("%s %s", a.Status, a.text)
	}
	blocked := func() bool { return strings.Contains(plain(r.page(page)), "Blocked") }
	if _, err := r.conn.ReserveJob(ctx, first); err != nil {
		t.Fatal(err)
	}
	if err := r.conn.Bury(ctx, first, 1); err != nil {
		t.Fatal(err)
	}
	if blocked() {
		t.Error("a group with a job to be done is blocked")
	}
	if err := r.conn.Delete(ctx, second); err != nil {
		t.Fatal(err)
	}
	wantText(t, r.page(page), "Blocked", "Pending 1", "Buried 1", "Waiting 1")
	if err := r.conn.Delete(ctx, first); err != nil {
		t.Fatal(err)
	}
	if a := r.get(page); a.StatusCode != http.StatusNotFound {
		t.Errorf("a group that is done: %s", a.Status)
	}
}

func TestFailedSaysWhichGroupsABuriedJobBlocks(t *testing.T) {
	r := newRig(t, nil)
	r.console.cfg.Local = local{r}
	ctx := t.Context()
	member := r.tagged("a", "grp:import/1")
	r.tagged("a", "grp:import/1") // so that it is not settled
	r.bury("a", "alone")          // so that the tube is listed, however old the table of tubes is
	job := fmt.Sprintf("/jobs/%d", member)
	blocks := func() bool {
		t.Helper()
		failed, page := strings.Contains(r.page("/failed"), `href="/groups/import%2F1"`), strings.Contains(r.page(job), "it blocks the group")
		if failed != page {
			t.Errorf("the page of failed jobs says that it blocks: %v, and that of the job: %v", failed, page)
		}
		return failed
	}
	r.tagged("b", "aft:import/1:settled")
	held := []uint64{r.tagged("b", "aft:import/1"), r.tagged("c", "aft:import/1")}
	if blocks() {
		t.Error("a job that is not buried blocks")
	}
	if _, err := r.conn.ReserveJob(ctx, member); err != nil {
		t.Fatal(err)
	}
	if err := r.conn.Bury(ctx, member, 1); err != nil {
		t.Fatal(err)
	}
	if !blocks() {
		t.Error("a buried job does not block")
	}
	wantText(t, r.page("/failed"), "Blocks", "import/1 2 jobs waiting")
	wantText(t, r.page(job), "it blocks the group import/1 2 jobs waiting")
	for _, id := range held {
		if err := r.conn.Delete(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	if blocks() {
		t.Error("a job blocks that nobody waits for, but who is content with a buried one")
	}
}

func TestNamesThatNoGroupHasAreNotAskedFor(t *testing.T) {
	r := newRig(t, nil)
	r.console.pool.dial = nil // whoever asks the server panics
	for _, name := range []string{"-a", "%3Cscript%3E", "a%20b", "a%0d%0aquit", strings.Repeat("g", 65), "a*"} {
		for _, path := range []string{"/groups/", apiRoot + "/groups/"} {
			if a := r.get(path + name); a.StatusCode != http.StatusBadRequest {
				t.Errorf("%s%s: %s", path, name, a.Status)
			}
		}
	}
}

func TestAGroupIsFoundByItsTag(t *testing.T) {
	r := newRig(t, nil)
	for name, tag := range map[string]string{"..": "grp:..", "a/b": "grp:a/b"} {
		r.tagged("a", tag)
		a := r.get("/find?" + values("q", tag).Encode())
		wantText(t, r.page(a.Header.Get("Location")), "Group / "+name, "Pending 1")
	}
	if a := r.get("/find?q=grp:a*"); !strings.HasPrefix(a.Header.Get("Location"), "/tubes?") {
		t.Errorf("a name that no group has leads to %s", a.Header.Get("Location"))
	}
}

func TestAServerWithoutGroupsSaysSo(t *testing.T) {
	r := stockRig(t)
	for _, path := range []string{"/groups/g", apiRoot + "/groups/g", apiRoot + "/tubes/a/settings"} {
		if a := r.get(path); a.StatusCode != http.StatusNotImplemented {
			t.Errorf("%s: %s", path, a.Status)
		}
	}
}
