package console

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"trellis/cmd/internal/client"
)

// setting is a key of a tube's setting, as the API has it.
func (r *rig) setting(tube, key string) string {
	r.t.Helper()
	f, err := r.conn.Setting(r.t.Context(), tube)
	if err != nil {
		r.t.Fatal(err)
	}
	return f.Text(key)
}

func TestSettingsAreChangedWhereTheFormHasAnotherValue(t *testing.T) {
	r := newRig(t, writable)
	r.put("a", 1, 0, "x")
	page := r.page("/tubes/a")
	for _, want := range []string{`name="rate" maxlength="200" value="" placeholder="0"`, `name="retry-max" maxlength="200" value="" placeholder="3600"`} {
		if !containsAction(page, "/tubes/a/settings") || !strings.Contains(page, want) {
			t.Errorf("the form lacks %s:\n%s", want, page)
		}
	}
	wantText(t, r.do("/tubes/a/settings", "rate", " 10/1m ", "was-rate", "", "dead", "failed", "was-dead", "", "burst", "", "was-burst", ""),
		"tube a settings changed (dead=failed rate=10/60)")
	if page := r.page("/tubes/a"); !strings.Contains(page, `name="rate" maxlength="200" value="10/60"`) || !strings.Contains(page, `name="was-rate" value="10/60"`) {
		t.Errorf("the form does not show what was set:\n%s", page)
	}
	if err := r.conn.SetTube(t.Context(), "a", "rate=20/60"); err != nil { // by somebody else meanwhile
		t.Fatal(err)
	}
	wantText(t, r.do("/tubes/a/settings", "rate", "10/60", "was-rate", "10/60", "dead", "", "was-dead", "failed"), "settings changed (dead=)")
	if rate, dead := r.setting("a", "rate"), r.setting("a", "dead"); rate != "20/60" || dead != "" {
		t.Errorf("rate %q, dead %q", rate, dead)
	}
	wantLog := `msg="console: change" who=ann from=127.0.0.1:5555 what=set on="tube a" detail="dead=failed rate=10/60" result="settings changed"`
	if log := r.log.String(); !strings.Contains(log, wantLog) {
		t.Errorf("the log lacks %s:\n%s", wantLog, log)
	}
	for _, form := range [][]string{{}, {"rate", "5", "was-rate", "5"}, {"rate", "x"}, {"rate", "1 burst=2 x"}, {"dead", "-"}, {"burst", "0"}, {"none", ""}} {
		if a := r.post("/tubes/a/settings", values(form...)); a.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %s", form, a.Status)
		}
	}
	for _, text := range []string{`{}`, `{"settings":[]}`, `{"settings":["none"]}`, `{"settings":["rate"]}`, `{"settings":["expire=1500ms"]}`, `{"settings":["rate=1\r\nquit"]}`} {
		if a := r.call("/tubes/a/settings", text); a.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", text, a.Status)
		}
	}
	if rate := r.setting("a", "rate"); rate != "20/60" {
		t.Errorf("a form with a mistake has made the rate %s", rate)
	}
}

func TestSettingsAreToldWithTheirDefaults(t *testing.T) {
	r := newRig(t, writable)
	const rest = `"retry-factor":2,"retry-max":3600,"retry-jitter":10,`
	none := r.get(apiRoot + "/tubes/x%2Fy/settings").text
	if want := `{"tube":"x/y","attempts":0,"dead":"","disconnects":0,"retry-min":0,` + rest + `"rate":0,"burst":0,"max-reserved":0,"expire":0,"paused":0,"linger":0}` + "\n"; none != want {
		t.Errorf("%s, want %s", none, want)
	}
	if a := r.call("/tubes/x%2Fy/settings", `{"settings":["rate=10/60","max-reserved=4"]}`); a.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", a.Status, a.text)
	}
	set := r.get(apiRoot + "/tubes/x%2Fy/settings").text
	if !strings.Contains(set, rest+`"rate":"10/60",`) || !strings.Contains(set, `"max-reserved":4,`) {
		t.Errorf("%s", set)
	}
}

func TestATubeSaysWhatHoldsItBack(t *testing.T) {
	r := newRig(t, nil)
	ctx := t.Context()
	reserve := func() {
		t.Helper()
		if _, err := r.conn.Reserve(ctx, 0); err != nil {
			t.Fatal(err)
		}
	}
	set := func(pairs ...string) {
		t.Helper()
		if err := r.conn.SetTube(ctx, "a", pairs...); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.conn.Watch(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.put("a", 1, 0, "x")
	}
	held := func() bool { return strings.Contains(plain(r.page("/tubes/a")), "Held back") }
	if held() {
		t.Error("a tube without a setting is held back")
	}
	set("rate=1/86400", "burst=1")
	reserve()
	wantText(t, r.page("/tubes/a"), "Held back by rate, next in ")
	set("none")
	set("max-reserved=1")
	wantText(t, r.page("/tubes/a"), "Held back by max-reserved")
	set("none")
	set("paused=1")
	wantText(t, r.page("/tubes/a"), "Paused by its setting.")
	set("none")
	reserve()
	reserve()
	set("max-reserved=1")
	if held() {
		t.Error("a tube without ready jobs is held back")
	}
}

func TestTheTableSaysWhatHoldsTubesBack(t *testing.T) {
	r := newRig(t, nil)
	r.console.cfg.Local = local{r}
	for tube, pair := range map[string]string{"a": "paused=1", "b": "max-reserved=1", "c": "max-reserved=2"} {
		if err := r.conn.SetTube(t.Context(), tube, pair); err != nil {
			t.Fatal(err)
		}
		r.hold(tube, "x")
		r.put(tube, 1, 0, "y")
	}
	page := r.page("/tubes?sort=limited")
	wantText(t, page, "a paused by its setting", "b held back by max-reserved")
	if strings.Contains(plain(page), "c held back") {
		t.Errorf("a tube that hands out jobs is held back:\n%s", plain(page))
	}
	wantText(t, r.page("/"), "1 tube paused.")
	if a := r.get(apiRoot + "/tubes?sort=limited&limit=1"); !strings.Contains(a.text, `[{"name":"a",`) {
		t.Errorf("paused tubes are not the first: %s", a.text)
	}
}

func TestOrphansAreShownByTube(t *testing.T) {
	r := newRig(t, nil)
	for _, tube := range []string{"a", "b"} {
		r.put(tube, 1, 0, "x")
	}
	if err := r.conn.SetTube(t.Context(), "a", "linger=600"); err != nil {
		t.Fatal(err)
	}
	if page := plain(r.page("/tubes/a")); strings.Contains(page, " orphaned ") {
		t.Errorf("there is none:\n%s", page)
	}
	nc, err := r.reactor.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	worker := client.New(nc, "the server")
	for id := range uint64(2) {
		if _, err := worker.ReserveJob(t.Context(), id+1); err != nil {
			t.Fatal(err)
		}
	}
	nc.Close()
	for r.stat("b", "current-jobs-ready") == 0 { // it does not linger
		time.Sleep(time.Millisecond)
	}
	wantText(t, r.page("/tubes/a"), "Reserved 1 1 orphaned")
	r.console.cfg.Local = local{r}
	page := r.page("/tubes?sort=orphaned")
	wantText(t, page, "a 1 orphaned")
	if strings.Contains(plain(page), "b 1 orphaned") {
		t.Errorf("a tube without orphans has a badge:\n%s", plain(page))
	}
	wantText(t, r.page("/"), "Reserved 1 1 orphaned")
	if a := r.get(apiRoot + "/tubes?sort=orphaned&limit=1"); !strings.Contains(a.text, `"current-jobs-orphaned":1,`) {
		t.Errorf("the tube with orphans is not the first: %s", a.text)
	}
}
