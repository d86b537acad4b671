//go:build proof

package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// visitor uses a console by links and forms alone, in a browser that runs no scripts of pages.
type visitor struct {
	*browser
	r *rig

	mu     sync.Mutex
	posted map[string]bool // the paths of the changes that a form has led to; guarded by mu
}

// newVisitor starts a browser without scripts.
func newVisitor(t *testing.T, r *rig) *visitor {
	v := &visitor{r: r, posted: make(map[string]bool)}
	forms := http.NewServeMux()
	for _, ch := range changes {
		forms.HandleFunc("POST "+ch.path, func(http.ResponseWriter, *http.Request) {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.posted[ch.path] = true
		})
	}
	next := r.console.handler
	r.console.handler = http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		if hr.Header.Get("Trellis-Refresh") != "" {
			t.Error("the page's script runs")
		}
		forms.ServeHTTP(discard{}, hr)
		next.ServeHTTP(w, hr)
	})
	v.browser = newBrowser(t, r)
	v.run(emulation.SetScriptExecutionDisabled(true))
	return v
}

// discard takes an answer that nobody reads.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// click clicks on what leads to another page, and waits for that.
func (v *visitor) click(selector string) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, chromedp.Click(selector, chromedp.ByQuery)); err != nil {
		at := ""
		v.eval(`location.href + "\n" + document.querySelector("main").innerText`, &at)
		v.t.Fatalf("clicking on %s: %v\n%s", selector, err, at)
	}
}

// fill has a field hold a value, as somebody would write it.
func (v *visitor) fill(selector, value string) {
	v.t.Helper()
	v.run(chromedp.SetValue(selector, value, chromedp.ByQuery))
}

// at makes sure that a page has been reached, and that it says this.
func (v *visitor) at(path string, texts ...string) {
	v.t.Helper()
	var here, text string
	v.eval("location.href", &here)
	v.eval(`document.querySelector("main").innerText`, &text)
	u, err := url.Parse(here)
	if err != nil {
		v.t.Fatal(err)
	}
	if got := u.EscapedPath(); got != path {
		v.t.Fatalf("at %s, want %s:\n%s", got, path, text)
	}
	text = spaces.ReplaceAllString(text, " ")
	for _, want := range texts {
		if !strings.Contains(text, want) {
			v.t.Fatalf("%s does not say %q:\n%s", here, want, text)
		}
	}
}

// want makes sure that a number in the statistics of a tube is what it should be.
func (v *visitor) want(tube, key string, n uint64) {
	v.t.Helper()
	if got := v.r.stat(tube, key); got != n {
		v.t.Fatalf("%s of %s is %d, want %d", key, tube, got, n)
	}
}

func (v *visitor) wantState(id uint64, state string) {
	v.t.Helper()
	if got := v.r.state(id); got != state {
		v.t.Fatalf("job %d is %q, want %q", id, got, state)
	}
}

// button is the selector of a button in the form that goes to a path.
func button(path, rest string) string { return fmt.Sprintf(`form[action="%s"] button%s`, path, rest) }

// TestEverythingIsDoneWithoutScripts goes to every page by its link, and makes every change
// by its form, with scripts off.
func TestEverythingIsDoneWithoutScripts(t *testing.T) {
	r := newRig(t, writable)
	r.console.cfg.Local = local{r}
	r.console.cfg.Who = nobodyAsked
	for range 3 {
		r.put("mail/out", 10, 0, `{"to":"ann@example.org"}`)
	}
	v := newVisitor(t, r)
	v.open("/")
	hidden := false
	if v.eval(`document.getElementById("live").hidden`, &hidden); !hidden {
		t.Fatal("the page's script has run")
	}
	v.visitPages()
	v.changeTube()
	v.changeJobs()
	v.changeJob()
	v.changeServer()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, ch := range changes {
		if !v.posted[ch.path] {
			t.Errorf("no page has led to POST %s", ch.path)
		}
	}
}

// visitPages follows the links of all pages, and looks for things.
func (v *visitor) visitPages() {
	v.t.Helper()
	for _, p := range []struct{ link, path, says string }{
		{"/tubes", "/tubes", "1–2 of 2"},
		{"/failed", "/failed", "No job is buried."},
		{"/connections", "/connections", "producer"},
		{"/put", "/put", "Time to run"},
		{"/server", "/server", "Largest body"},
		{"/actions", "/actions", "Nothing yet."},
		{"/", "/", "Tubes with the most jobs"},
	} {
		v.click(fmt.Sprintf(`nav[aria-label="Pages"] a[href="%s"]`, p.link))
		v.at(p.path, p.says)
	}
	v.click(`.switch a[href="?range=6h"]`)
	v.at("/", "6 h ago")
	v.click(`#busiest-tubes a[href="/tubes/mail%2Fout"]`)
	v.at("/tubes/mail%2Fout", "Next jobs", "How old ready jobs are")
	v.click(`.head .switch a[href="?range=6h"]`)
	v.at("/tubes/mail%2Fout", "6 h ago")
	v.click(`a[href="/tubes/mail%2Fout/jobs"]`)
	v.at("/tubes/mail%2Fout/jobs", "ann@example.org")
	v.fill("#grep", "nobody")
	v.click(`form[role="search"].wide button`)
	v.at("/tubes/mail%2Fout/jobs", "0 hits in 3 of 3 bodies")
	v.click(`.tabs a.delayed`)
	v.at("/tubes/mail%2Fout/jobs", "No delayed jobs.")
	v.click(`.tabs a.ready`)
	v.click(`a[href="/jobs/1"]`)
	v.at("/jobs/1", `"to": "ann@example.org"`)
	v.click(`.switch a[href="?view=hex"]`)
	v.at("/jobs/1", "7b 22 74 6f")
	v.click(`.switch a[href="?view=text"]`)
	v.at("/jobs/1", `{"to":"ann@example.org"}`)
	v.open("/tubes")
	v.fill("#filter", "def")
	v.click(`form[aria-label="Filter"] button`)
	v.at("/tubes", "1–1 of 1 that have “def”")
	v.open("/tubes")
	v.click(`th a[href*="sort=name"]`)
	v.at("/tubes", "1–2 of 2")
	sorted := ""
	v.eval(`document.querySelector("th[aria-sort]").textContent + document.querySelector("th[aria-sort]").ariaSort`, &sorted)
	if sorted != "Tubeascending" {
		v.t.Fatalf("the tubes are sorted by %s", sorted)
	}
	v.fill("#find", "2")
	v.submit("#find")
	v.at("/jobs/2", "Job 2")
}

// openFor opens a page of which the table may be some seconds old, until it has something.
func (v *visitor) openFor(path, selector string) {
	v.t.Helper()
	there := false
	for begun := time.Now(); !there && time.Since(begun) < patience; {
		v.open(path)
		v.eval(fmt.Sprintf("document.querySelector(%q) !== null", selector), &there)
	}
}

// submit presses Enter in a field.
func (v *visitor) submit(selector string) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, chromedp.SendKeys(selector, "\r", chromedp.ByQuery)); err != nil {
		v.t.Fatal(err)
	}
}

// changeTube does what a tube's page and the page of failed jobs offer. There are three
// ready jobs.
func (v *visitor) changeTube() {
	v.t.Helper()
	const tube, path = "mail/out", "/tubes/mail%2Fout"
	v.open(path)
	v.fill("#seconds", "500")
	v.click(button(path+"/pause", ":not([value])"))
	v.at(path, "tube mail/out paused for 8 m 20 s", "Paused: hands out no jobs")
	if left := v.r.stat(tube, "pause-time-left"); left == 0 || left > 500 {
		v.t.Fatalf("the tube is paused for %d s", left)
	}
	v.click(`button[form="resume"]`)
	v.at(path, "tube mail/out resumed")
	v.want(tube, "pause-time-left", 0)

	v.open("/tubes")
	v.fill("#pause-for", "3600")
	v.click(`button[form="pause"][formaction="` + path + `/pause"]`)
	v.at("/tubes", "tube mail/out paused for 1 h")
	if left := v.r.stat(tube, "pause-time-left"); left <= 500 {
		v.t.Fatalf("the tube is paused for %d s", left)
	}
	resume := `button[form="resume"][formaction="` + path + `/pause"]`
	v.openFor("/tubes", resume)
	v.click(resume)
	v.at("/tubes", "tube mail/out resumed")
	v.want(tube, "pause-time-left", 0)

	v.open(path)
	v.fill("#dlq-attempts", "2")
	v.fill("#dlq-to", "dead")
	v.click(button(path+"/dlq", ""))
	v.at(path, "jobs are buried in dead after 2 failed attempts")
	settings, err := v.r.conn.DeadLetters(v.t.Context())
	if err != nil || len(settings) != 1 || settings[0].Text("tube") != tube || settings[0].Uint("max-attempts") != 2 || settings[0].Text("dead-tube") != "dead" {
		v.t.Fatalf("%v, %v", settings, err)
	}
	v.click(`button[form="no-dlq"]`)
	v.at(path, "no job is buried for its failed attempts any more")
	if settings, err := v.r.conn.DeadLetters(v.t.Context()); err != nil || len(settings) != 0 {
		v.t.Fatalf("%v, %v", settings, err)
	}

	v.fill("#set-retry-min", "5")
	v.click(button(path+"/settings", ""))
	v.at(path, "settings changed (retry-min=5)")

	for range 3 {
		v.r.bury(tube, "failed")
	}
	v.fill("#kick-count", "2")
	v.click(button(path+"/kick", ""))
	v.at(path, "2 jobs kicked")
	v.want(tube, "current-jobs-buried", 1)

	v.openFor("/failed", button(path+"/kick", ""))
	v.click(button(path+"/kick", ""))
	v.at("/failed", "1 job kicked")
	v.want(tube, "current-jobs-buried", 0)

	v.open(path)
	v.fill("#move-state", "ready")
	v.fill("#move-count", "2")
	v.fill("#move-to", "other")
	v.click(button(path+"/move", ""))
	v.at(path, "2 jobs moved (ready, to tube other, at most 2)")
	v.want("other", "current-jobs-ready", 2)
	v.want(tube, "current-jobs-ready", 4)

	v.fill("#delete-state", "ready")
	v.fill("#delete-count", "1")
	v.click(button(path+"/delete", ""))
	v.at(path+"/delete", "Are you sure?", "This deletes 1 job")
	v.want(tube, "current-jobs-ready", 4)
	v.click(".confirm a")
	v.at(path)
	v.want(tube, "current-jobs-ready", 4)
	v.fill("#delete-state", "ready")
	v.fill("#delete-count", "1")
	v.click(button(path+"/delete", ""))
	v.click(".confirm .danger")
	v.at(path, "1 job deleted")
	v.want(tube, "current-jobs-ready", 3)

	v.click(button(path+"/flush", ""))
	v.at(path+"/flush", "This deletes 3 jobs of tube mail/out")
	v.want(tube, "current-jobs-ready", 3)
	v.click(".confirm .danger")
	v.at(path, "3 jobs deleted")
	v.want(tube, "current-jobs-ready", 0)
}

// changeJobs does what lists of jobs offer.
func (v *visitor) changeJobs() {
	v.t.Helper()
	const tube, path = "list", "/tubes/list/jobs"
	var ids [4]uint64
	for i := range ids {
		ids[i] = v.r.put(tube, 10, 0, "x")
	}
	choose := func(ids ...uint64) {
		v.t.Helper()
		for _, id := range ids {
			v.run(chromedp.Click(fmt.Sprintf(`input[name="id"][value="%d"]`, id), chromedp.ByQuery))
		}
	}
	v.open(path)
	choose(ids[0], ids[2])
	v.click(`button[formaction="/jobs/bury"]`)
	v.at(path, "2 jobs buried")
	v.wantState(ids[0], "buried")
	v.wantState(ids[1], "ready")
	v.wantState(ids[2], "buried")
	v.click(".tabs a.buried")
	choose(ids[0])
	v.click(`button[formaction="/jobs/kick"]`)
	v.at(path, "1 job kicked")
	v.wantState(ids[0], "ready")
	choose(ids[2])
	v.fill("#bulk-to", "elsewhere")
	v.click(`.bulk button[formaction="/jobs/move"]`)
	v.at(path, "1 job moved (to tube elsewhere)")
	v.want("elsewhere", "current-jobs-buried", 1)
	v.click(".tabs a.ready")
	choose(ids[1], ids[3])
	v.click(`button[formaction="/jobs/delete"]`)
	v.at("/jobs/delete", "Are you sure?")
	v.wantState(ids[1], "ready")
	v.click(".confirm .danger")
	v.at(path, "2 jobs deleted")
	v.wantState(ids[0], "ready")
	v.wantState(ids[1], "")
	v.wantState(ids[3], "")
}

// changeJob does what the page of a job offers.
func (v *visitor) changeJob() {
	v.t.Helper()
	id := v.r.put("one", 10, 0, "x")
	path := fmt.Sprintf("/jobs/%d", id)
	v.open(path)
	v.click(button(path+"/bury", ""))
	v.at(path, "1 job buried")
	v.wantState(id, "buried")
	v.click(button(path+"/kick", ""))
	v.at(path, "1 job kicked")
	v.wantState(id, "ready")
	v.fill("#to", "copies")
	v.click(button(path+"/copy", ":not([formaction])"))
	v.at(path, "put as job")
	v.want("copies", "current-jobs-ready", 1)
	v.fill("#to", "two")
	v.click(`button[formaction="` + path + `/move"]`)
	v.at(path, "1 job moved (to tube two)")
	v.want("two", "current-jobs-ready", 1)
	v.click(button(path+"/delete", ""))
	v.at(path+"/delete", "Are you sure?")
	v.wantState(id, "ready")
	v.click(".confirm .danger")
	v.wantState(id, "")
	v.at("/actions", "1 job deleted")
}

// changeServer does what the pages of the server and for putting offer.
func (v *visitor) changeServer() {
	v.t.Helper()
	v.open("/tubes/list")
	v.click(`form[action="/put"] button`)
	v.at("/put")
	v.fill("#pri", "3")
	v.fill("#delay", "60")
	v.fill("#key", "only-one")
	v.fill("#body", "<script>\nä")
	v.click(button("/put", ""))
	v.at("/put", "put as job")
	j, err := v.r.conn.PeekTube(v.t.Context(), "list", "delayed")
	if err != nil || string(j.Body) != "<script>\nä" {
		v.t.Fatalf("%q, %v", j.Body, err)
	}
	draining := func() string {
		v.t.Helper()
		stats, err := v.r.conn.Stats(v.t.Context())
		if err != nil {
			v.t.Fatal(err)
		}
		return stats.Text("draining")
	}
	v.open("/server")
	v.click(button("/server/drain", ""))
	v.at("/server/drain", "Are you sure?")
	if s := draining(); s != "false" {
		v.t.Fatalf("draining is %s", s)
	}
	v.click(".confirm .danger")
	v.at("/server", "New jobs are refused.")
	if s := draining(); s != "true" {
		v.t.Fatalf("draining is %s", s)
	}
	v.click(button("/server/undrain", ""))
	v.at("/server", "New jobs are taken.")
	if s := draining(); s != "false" {
		v.t.Fatalf("draining is %s", s)
	}

	own := v.r.ownID()
	v.open("/connections")
	v.click(button("/connections/"+own+"/kick", ""))
	v.at("/connections", "connection "+own+" ended")
}
