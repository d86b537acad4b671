//go:build proof

package console

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

// needPeer skips the test because something is missing that other projects make, or fails
// it where the environment promises that nothing is missing.
func needPeer(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("TRELLIS_NEED_PEERS") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format+" (make proof installs it)", args...)
}

// patience is how long a test waits for the browser.
const patience = time.Minute

// browser is a Chromium with one tab.
type browser struct {
	t    *testing.T
	ctx  context.Context
	url  string
	errs []string // what the browser complains of
}

// newBrowser starts Chromium and shows it a console.
func newBrowser(t *testing.T, r *rig) *browser {
	path, err := exec.LookPath("chromium")
	if err != nil {
		needPeer(t, "no chromium")
	}
	server := httptest.NewServer(r.console)
	t.Cleanup(server.Close)
	// Not in t.TempDir: processes of the browser that are still ending may write there.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(patience))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, _ = chromedp.NewContext(ctx, chromedp.WithBrowserOption(chromedp.WithDialTimeout(patience)))
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Logf("ending the browser: %v", err)
		}
	})
	b := &browser{t: t, ctx: ctx, url: server.URL}
	chromedp.ListenTarget(ctx, func(event any) {
		if e, ok := event.(*runtime.EventExceptionThrown); ok {
			b.errs = append(b.errs, e.ExceptionDetails.Error())
		}
	})
	b.run(runtime.Enable())
	return b
}

func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if b.ctx.Err() == nil && chromedp.FromContext(b.ctx).Target == nil {
		ctx = b.ctx // the tab lives as long as the context that it was made in
	}
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// eval runs a script in the page.
func (b *browser) eval(script string, result any) {
	b.t.Helper()
	b.run(chromedp.Evaluate(script, result))
}

// enter presses the key, which may lead to another page.
func (b *browser) enter() {
	b.t.Helper()
	// Where it does, the page that the key is released on may be gone, which is an error to
	// the browser. What the key has done is for the caller to see.
	if err := chromedp.Run(b.ctx, chromedp.KeyEvent(kb.Enter)); err != nil && b.ctx.Err() != nil {
		b.t.Fatal(err)
	}
}

// until waits until a page that is loaded makes a script say true.
func (b *browser) until(what, script string) {
	b.t.Helper()
	script = `document.readyState === "complete" && (` + script + `)`
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ok := false
		// It fails while one page makes way for another.
		if err := chromedp.Run(b.ctx, chromedp.Evaluate(script, &ok)); err == nil && ok {
			return
		}
		if err := b.ctx.Err(); err != nil {
			b.t.Fatal(err)
		}
	}
	state := ""
	b.eval(`location.href + "\n" + document.activeElement.outerHTML.slice(0, 300) + "\n" + document.querySelector("main")?.innerText.slice(0, 500)`, &state)
	b.t.Fatalf("waited in vain: %s\n%s", what, state)
}

func (b *browser) open(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.url + path))
}

// scheme makes pages dark, or light.
func scheme(name string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}})
}

// furnish gives the rig's server something to show: jobs, workers, and a past.
func furnish(r *rig) (ready, held, buried uint64) {
	for i := range 40 {
		r.put("mail/outgoing", uint32(i%4), 0, fmt.Sprintf(`{"template":"welcome","to":"user%d@example.org","locale":"en"}`, i))
	}
	for i := range 25 {
		r.put("thumbnails", 1000, 0, fmt.Sprintf("s3://media/originals/%06d.jpg 640x480", i))
	}
	for i := range 12 {
		r.put("reports.nightly", 500, uint32(3600+i*60), fmt.Sprintf(`{"report":%d,"format":"pdf"}`, i))
	}
	for i := range 9 {
		buried = r.bury("payments", fmt.Sprintf(`{"invoice":"INV-%04d","error":"card declined"}`, i))
	}
	r.put("invoices", 3, 0, "INV-2204")
	r.put("search/index", 9, 0, "reindex products")
	for i := range 6 {
		held = r.hold("thumbnails", fmt.Sprintf("s3://media/originals/held-%d.png 1280x720", i))
	}
	ready = r.put("webhooks", 5, 0, `{"event":"order.paid","id":"ord_8c1f","amount":{"value":4999,"currency":"EUR"},"attempt":1,"url":"https://example.org/hooks/orders"}`)
	if err := r.conn.Pause(r.t.Context(), "invoices", 900); err != nil {
		r.t.Fatal(err)
	}
	for range 3 { // workers that wait
		conn, err := r.dial(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { _ = conn.Close() })
		for _, line := range []string{"watch payments.urgent", "watch exports", "ignore default", "reserve"} {
			if err := conn.Queue(r.t.Context(), line, nil); err != nil {
				r.t.Fatal(err)
			}
		}
		if err := conn.Flush(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
	}
	h := &r.console.history
	now := time.Now()
	h.ofTube("mail/outgoing", now, false)
	h.mu.Lock()
	defer h.mu.Unlock()
	var in, out float64
	for s := -21600; s <= 0; s++ {
		x := float64(s)
		slow := math.Sin(x / 2900)
		in += 48 * (1 + 0.3*math.Sin(x/47) + 0.15*math.Sin(x/11) + 0.08*math.Sin(x/3) + 0.3*slow)
		out += 46 * (1 + 0.25*math.Sin((x-14)/47) + 0.1*math.Sin(x/7) + 0.3*slow)
		n := operate.Counts{
			Ready: int64(69 + 34*math.Sin(x/47) + 6*math.Sin(x/5)), Reserved: int64(6.5 + 3*math.Sin(x/13)),
			Delayed: int64(12.5 + 4*math.Sin(x/190)), Buried: int64((x + 21600) / 2700), Waiting: int64(max(0, 3-9*math.Sin(x/47))),
			Puts: uint64(in), Deletes: uint64(out), Timeouts: uint64((x + 21600) / 4),
		}
		at := now.Add(time.Duration(s) * time.Second)
		h.server.add(at, n)
		h.tubes["mail/outgoing"].add(at, n)
	}
	return ready, held, buried
}

// picture writes a picture of the whole page, and returns how wide that is.
func (b *browser) picture(file string) (width int) {
	b.t.Helper()
	var size struct{ Width, Height int }
	b.eval(`({width: document.documentElement.scrollWidth, height: document.documentElement.scrollHeight})`, &size)
	var png []byte
	b.run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		png, err = page.CaptureScreenshot().WithCaptureBeyondViewport(true).
			WithClip(&page.Viewport{Width: float64(size.Width), Height: float64(size.Height), Scale: 1}).Do(ctx)
		return err
	}))
	if err := os.WriteFile(file, png, 0o666); err != nil {
		b.t.Fatal(err)
	}
	return size.Width
}

// violations are what axe finds wrong with the page that is shown.
func (b *browser) violations(axe, options string) (found []string) {
	b.t.Helper()
	var result []struct {
		ID    string `json:"id"`
		Help  string `json:"help"`
		Nodes []struct {
			HTML    string `json:"html"`
			Summary string `json:"failureSummary"`
		} `json:"nodes"`
	}
	var text string
	there := false
	b.eval("window.axe !== undefined", &there)
	if !there {
		b.eval(axe+"\n;null", nil)
	}
	b.run(chromedp.Evaluate(`axe.run(document, {resultTypes: ["violations"], `+options+`}).then(r => JSON.stringify(r.violations))`, &text,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		b.t.Fatal(err)
	}
	for _, v := range result {
		for _, n := range v.Nodes {
			found = append(found, fmt.Sprintf("%s: %s: %s\n%s", v.ID, v.Help, n.HTML, n.Summary))
		}
	}
	return found
}

// TestPagesInARealBrowser takes pictures of every page in both schemes, lets axe look at
// them, and makes sure that they fit into 320 pixels.
func TestPagesInARealBrowser(t *testing.T) {
	r := newRig(t, writable)
	r.console.cfg.Local = local{r}
	r.console.cfg.Who = nobodyAsked
	b := newBrowser(t, r)
	dir := os.Getenv("TRELLIS_AXE")
	axe, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	if dir == "" || err != nil {
		needPeer(t, "no axe-core in TRELLIS_AXE=%s", dir)
	}
	ready, held, buried := furnish(r)
	r.post("/tubes/mail%2Foutgoing/pause", values("seconds", "0"))
	r.post("/tubes/payments/kick", values("count", "1"))
	r.post("/tubes/nosuch/kick", values("count", "1"))
	pages := []struct{ name, path string }{
		{"overview", "/"},
		{"overview-6h", "/?range=6h"},
		{"tubes", "/tubes"},
		{"tube", "/tubes/mail%2Foutgoing"},
		{"jobs", "/tubes/mail%2Foutgoing/jobs"},
		{"jobs-buried", "/tubes/payments/jobs?state=buried"},
		{"job", fmt.Sprintf("/jobs/%d", ready)},
		{"job-hex", fmt.Sprintf("/jobs/%d?view=hex", buried)},
		{"job-held", fmt.Sprintf("/jobs/%d", held)},
		{"failed", "/failed"},
		{"connections", "/connections"},
		{"put", "/put"},
		{"server", "/server"},
		{"actions", "/actions?done=2"},
		{"missing", "/jobs/999999"},
	}
	artifacts := t.ArtifactDir()
	long := strings.Repeat("a-name-that-is-as-long-as-names-may-be/", 6)[:200]
	for i, p := range append(pages, []struct{ name, path string }{
		{"long-tubes", "/tubes"},
		{"long-tube", "/tubes/" + url.PathEscape(long)},
		{"long-jobs", "/tubes/" + url.PathEscape(long) + "/jobs?state=buried"},
		{"long-failed", "/failed"},
		{"long-overview", "/"},
		{"long-put", "/put?tube=" + url.QueryEscape(long)},
	}...) {
		if i == len(pages) { // not before, so that the other pictures are without it
			r.bury(long, strings.Repeat("w", 3000))
			r.put(long, 1<<32-1, 1<<32-1, "far from now")
			r.console.table.changed()
		}
		for _, s := range []string{"light", "dark"} {
			b.run(chromedp.EmulateViewport(1280, 860), scheme(s))
			if s == "light" {
				b.open(p.path)
			}
			b.picture(filepath.Join(artifacts, p.name+"-"+s+".png"))
			rules := ""
			if s == "dark" { // only colours are different
				rules = `runOnly: ["color-contrast"]`
			}
			for _, v := range b.violations(string(axe), rules) {
				t.Errorf("%s, %s: %s", p.name, s, v)
			}
		}
		b.run(chromedp.EmulateViewport(320, 640), scheme("light"))
		if width := b.picture(filepath.Join(artifacts, p.name+"-320.png")); width > 320 {
			t.Errorf("%s is %d pixels wide in a window of 320", p.name, width)
		}
	}
	for _, e := range b.errs {
		t.Errorf("the browser says: %s", e)
	}
}

// focused is what the keyboard would act on.
const focused = `(() => { const e = document.activeElement; return e === document.body ? "" : e.tagName + " " + (e.id || e.getAttribute("href") || e.name || e.getAttribute("aria-label") || e.textContent.trim()); })()`

// reachable are what the keyboard must reach, in the order of the page.
const reachable = `[...document.querySelectorAll("a[href],button,input:not([type=hidden]),select,textarea,summary,[tabindex='0']")]
	.filter(e => e.checkVisibility()).map(e => e.tagName + " " + (e.id || e.getAttribute("href") || e.name || e.getAttribute("aria-label") || e.textContent.trim()))`

func TestEverythingIsReachedByKeyboard(t *testing.T) {
	r := newRig(t, writable)
	r.console.cfg.Local = local{r}
	r.console.cfg.Who = nobodyAsked
	b := newBrowser(t, r)
	r.put("a", 1, 0, "x")
	buried := r.bury("payments", "card declined")
	r.put("payments", 1, 0, "INV-1")
	for _, path := range []string{"/", "/tubes", "/tubes/payments", "/tubes/payments/jobs?state=buried", fmt.Sprintf("/jobs/%d", buried), "/failed", "/put", "/server"} {
		b.open(path)
		var want, got []string
		var unseen int
		// Nothing is to be replaced meanwhile.
		b.eval(`document.querySelector("#live button")?.click(); document.activeElement.blur()
			window.trail = []; window.unseen = 0
			document.addEventListener("focusin", () => {
				const s = getComputedStyle(document.activeElement)
				trail.push(`+focused+`)
				if (s.outlineStyle === "none" || !(parseFloat(s.outlineWidth) > 0)) unseen++
			})
			window.scrollTo(0, 0)
			null`, nil)
		b.eval(reachable, &want)
		// The button that was clicked is where the keyboard goes on from, so first to the end.
		tabs := make([]chromedp.Action, 2*len(want)+2)
		for i := range tabs {
			tabs[i] = chromedp.KeyEvent(kb.Tab)
		}
		b.run(tabs...)
		b.eval("window.trail", &got)
		b.eval("window.unseen", &unseen)
		if unseen > 0 {
			t.Errorf("%s: %d times the focus cannot be seen", path, unseen)
		}
		if i := slices.Index(got, want[0]); i < 0 || len(got) < i+len(want) || !slices.Equal(got[i:i+len(want)], want) {
			t.Errorf("%s: the keyboard goes\n%s\nthe page is\n%s", path, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}

	// A walk: past the navigation, to a tube by its name, and what failed there is tried again.
	var at string
	b.open("/")
	b.run(chromedp.KeyEvent(kb.Tab))
	b.enter()
	b.until("the end of the navigation", `location.hash === "#main"`)
	b.eval("document.activeElement.id", &at)
	if at != "main" {
		t.Errorf("the first link leads to %q", at)
	}
	b.open("/tubes")
	// One event, as a keyboard's: what is prevented when the key goes down types nothing.
	slash := input.DispatchKeyEvent(input.KeyDown).WithKey("/").WithCode("Slash").WithText("/")
	b.run(slash, chromedp.KeyEvent("pay"))
	b.enter()
	b.until("the filter", `document.querySelectorAll("#tubes tbody tr").length === 1 && location.search.includes("q=pay")`)
	b.eval(`document.querySelector("#tubes tbody a").focus()`, nil)
	b.enter()
	b.until("the tube", `location.pathname === "/tubes/payments" && document.getElementById("kick-count") !== null`)
	b.eval(`document.getElementById("kick-count").focus()`, nil)
	b.enter()
	b.until("the notice", `(document.querySelector(".notice")?.textContent ?? "").includes("1 job kicked")`)
	if s := r.state(buried); s != "ready" {
		t.Errorf("the job is %s", s)
	}
}

// TestEnterAmongJobsMovesThemOrDoesNothing presses Enter where a browser then chooses the button.
func TestEnterAmongJobsMovesThemOrDoesNothing(t *testing.T) {
	r := newRig(t, writable)
	r.console.cfg.Who = nobodyAsked
	b := newBrowser(t, r)
	for _, state := range []string{"ready", "delayed", "buried"} {
		var id uint64
		switch state {
		case "ready":
			id = r.put("a", 1, 0, "x")
		case "delayed":
			id = r.put("a", 1, 1000, "x")
		default:
			id = r.bury("a", "x")
		}
		b.open("/tubes/a/jobs?state=" + state)
		var unseen bool
		if b.eval(`!document.querySelector("form.card > button").checkVisibility()`, &unseen); !unseen {
			t.Error("the button that Enter presses is shown beside the others")
		}
		b.eval(`const box = document.querySelector("td.check input"); box.click(); box.focus()`, nil)
		b.enter()
		b.until("the refusal, as there is no tube", `document.querySelector("main").innerText.includes("no tube can have the name")`)
		if got := r.state(id); got != state {
			t.Errorf("Enter on the box of a job that was %s: it is %s", state, got)
		}
		b.open("/tubes/a/jobs?state=" + state)
		b.eval(`document.querySelector("td.check input").click(); const to = document.getElementById("bulk-to"); to.value = "b"; to.focus()`, nil)
		b.enter()
		b.until("the notice", `(document.querySelector(".notice")?.textContent ?? "") !== ""`)
		if got := r.state(id); got != state || r.stat("b", "current-jobs-"+state) != 1 {
			t.Errorf("Enter in the field for a tube: the job that was %s is %s, and %d are in that tube", state, got, r.stat("b", "current-jobs-"+state))
		}
	}
}

func TestPagesRefreshThemselves(t *testing.T) {
	r := newRig(t, writable)
	r.console.cfg.Who = nobodyAsked
	b := newBrowser(t, r)
	r.put("a", 1, 0, "x")
	b.open("/tubes")
	b.eval("window.same = true", nil)
	r.put("later", 1, 0, "x")
	b.until("the new tube", `[...document.querySelectorAll("#tubes bdi")].some(e => e.textContent === "later")`)
	var same bool
	b.eval("window.same === true", &same)
	if !same {
		t.Error("the page was loaded anew")
	}
	// Somebody who has stopped it is left alone.
	b.eval(`document.querySelector("#live button").click(); window.before = document.getElementById("tubes"); null`, nil)
	var pressed string
	b.eval(`document.querySelector("#live button").getAttribute("aria-pressed")`, &pressed)
	if pressed != "false" {
		t.Errorf("the button is pressed: %s", pressed)
	}
	// Jobs that somebody chooses from are counted, and do not move.
	b.open("/tubes/a/jobs")
	b.eval(`document.querySelector("th.check input").click()`, nil)
	b.until("the count of those chosen", `document.querySelector(".chosen").textContent === "1 chosen"`)
	b.eval(`document.querySelector("button[formaction='/jobs/delete']").click()`, nil)
	b.until("the question", `document.querySelector("h1")?.textContent === "Are you sure?"`)
	b.eval(`document.querySelector(".confirm .danger").click()`, nil)
	b.until("the notice", `(document.querySelector(".notice")?.textContent ?? "").includes("1 job deleted")`)
	b.until("an address without the notice", `!location.search.includes("done=")`)
}

// TestWhatFailedIsAskedForAgainUnlessItWasAChange has the server of a console go and come
// back.
func TestWhatFailedIsAskedForAgainUnlessItWasAChange(t *testing.T) {
	r := newRig(t, writable)
	r.console.cfg.Who = nobodyAsked
	r.put("a", 1, 0, "x")
	var gone atomic.Bool
	works := r.console.pool.dial
	r.console.pool.dial = func(ctx context.Context) (*client.Conn, error) {
		if gone.Load() {
			return failing(ctx)
		}
		return works(ctx)
	}
	b := newBrowser(t, r)
	gone.Store(true)
	b.open("/tubes/a")
	b.until("the failure", `document.querySelector("#error[data-retry]") !== null`)
	gone.Store(false)
	b.until("the page", `document.getElementById("next-jobs") !== null`)

	b.open("/put?tube=b")
	gone.Store(true)
	b.eval(`document.querySelector("form[action='/put'] button").click()`, nil)
	b.until("the failure of the put", `document.getElementById("error") !== null`)
	gone.Store(false)
	var alone bool
	// The same address as a page: to load it again would be to put once more.
	if b.eval(`location.pathname === "/put" && document.getElementById("live").hidden`, &alone); !alone {
		t.Error("the script asks again for what was sent as a form")
	}
	if n := r.stat("b", "total-jobs"); n != 0 {
		t.Errorf("%d jobs were put", n)
	}
}

func TestNoScriptOfAJobRuns(t *testing.T) {
	r := newRig(t, writable)
	r.console.cfg.Local = local{r}
	r.console.cfg.Who = nobodyAsked
	b := newBrowser(t, r)
	id := r.bury("a", "</pre></textarea><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"+hostile)
	for _, path := range []string{"/", "/tubes/a", "/tubes/a/jobs?state=buried", fmt.Sprintf("/jobs/%d", id), fmt.Sprintf("/jobs/%d?view=hex", id), "/failed"} {
		b.open(path)
		var found struct {
			Title           string
			Images, Scripts int
		}
		b.eval(`({title: document.title, images: document.images.length, scripts: document.scripts.length})`, &found)
		if found.Title == "taken" || found.Images != 0 || found.Scripts != 1 {
			t.Errorf("%s: %+v", path, found)
		}
	}
}
