package console

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestEveryAnswerHasTheHeadersThatProtectIt(t *testing.T) {
	r := newRig(t, writable)
	r.put("a", 1, 0, "x")
	for _, path := range []string{"/", "/tubes", "/tubes/a", "/tubes/a/jobs", "/jobs/1", "/jobs/1/body", "/failed", "/put", "/nosuch", "/api/v1/stats", "/api/v1/nosuch", "/api/v1/openapi.json"} {
		a := r.get(path)
		h := a.Header
		if csp := h.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; ") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: %s", path, csp)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" || h.Get("Content-Type") == "" {
			t.Errorf("%s: %v", path, h)
		}
		if strings.Contains(a.text, "style=") || strings.Contains(a.text, "onclick") || strings.Contains(a.text, "<script>") {
			t.Errorf("%s has inline script or style", path)
		}
	}
}

func TestOnlyNamesOfThisHostAreServed(t *testing.T) {
	for host, served := range map[string]bool{
		"127.0.0.1:11380": true, "localhost": true, "LOCALHOST:1": true, "localhost.:80": true, "[::1]:11380": true, "127.9.9.9": true,
		"queue.example": true, "QUEUE.example:8443": true,
		"10.1.2.3:80": true, // the address that was connected to
		"10.1.2.4:80": false, "evil.example": false, "localhost.evil.example": false, "evil.example:11380": false, "": false,
		"127.0.0.1.evil.example": false, "queue.example.evil": false, "0.0.0.0": false, "[::]": false,
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			r := newRig(t, writable)
			a := r.send(method, "/put", "application/x-www-form-urlencoded", "to=a&pri=1&delay=0&ttr=1&body=x", func(req *http.Request) {
				req.Host = host
				local := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 80}
				*req = *req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, local))
			})
			if ok := a.StatusCode != http.StatusMisdirectedRequest; ok != served {
				t.Errorf("%s with host %q: %s", method, host, a.Status)
			}
			if n := r.stat("a", "total-jobs"); n != 0 && !served {
				t.Errorf("host %q has put a job", host)
			}
		}
	}
}

// writes are a form for every change, on what furnished has made.
var writes = map[string]string{
	"/tubes/{tube}/flush":            "confirmed=yes",
	"/tubes/{tube}/kick":             "count=1",
	"/tubes/{tube}/move":             "state=ready&to=b&count=1",
	"/tubes/{tube}/delete":           "state=ready&count=1&confirmed=yes",
	"/tubes/{tube}/pause":            "seconds=9",
	"/tubes/{tube}/dlq":              "attempts=3&to=b",
	"/tubes/{tube}/settings":         "rate=10/1&was-rate=&burst=5&was-burst=5",
	"/jobs/{id}/kick":                "",
	"/jobs/{id}/bury":                "",
	"/jobs/{id}/delete":              "confirmed=yes",
	"/jobs/{id}/move":                "to=b",
	"/jobs/{id}/copy":                "to=b",
	"/jobs/kick":                     "id=1",
	"/jobs/bury":                     "id=1",
	"/jobs/delete":                   "id=1&confirmed=yes",
	"/jobs/move":                     "id=1&to=b",
	"/put":                           "to=b&pri=1&delay=0&ttr=1&body=x",
	"/connections/{connection}/kick": "",
	"/server/drain":                  "confirmed=yes",
	"/server/undrain":                "",
}

// calls are the same as JSON.
var calls = map[string]string{
	"/tubes/{tube}/flush":            `{}`,
	"/tubes/{tube}/kick":             `{"count":1}`,
	"/tubes/{tube}/move":             `{"state":"ready","to":"b","count":1}`,
	"/tubes/{tube}/delete":           `{"state":"ready","count":1}`,
	"/tubes/{tube}/pause":            `{"seconds":9}`,
	"/tubes/{tube}/dlq":              `{"attempts":3,"to":"b"}`,
	"/tubes/{tube}/settings":         `{"settings":["retry-min=5","burst="]}`,
	"/jobs/{id}/kick":                ``,
	"/jobs/{id}/bury":                ``,
	"/jobs/{id}/delete":              ``,
	"/jobs/{id}/move":                `{"to":"b"}`,
	"/jobs/{id}/copy":                `{"to":"b"}`,
	"/jobs/kick":                     `{"ids":[1]}`,
	"/jobs/bury":                     `{"ids":[1]}`,
	"/jobs/delete":                   `{"ids":[1]}`,
	"/jobs/move":                     `{"ids":[1],"to":"b"}`,
	"/jobs":                          `{"to":"b","pri":1,"ttr":1,"body":"x"}`,
	"/connections/{connection}/kick": ``,
	"/server/drain":                  `{}`,
	"/server/undrain":                `{}`,
}

var fill = strings.NewReplacer("{tube}", "a", "{id}", "1", "{group}", "g", "{connection}", "1000000")

// unchanged makes sure that the rig's server has its one ready job in tube a, and nothing
// else.
func unchanged(t *testing.T, r *rig, after string) {
	t.Helper()
	stats, err := r.conn.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	settings, err := r.conn.Settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(settings) != 0 || r.state(1) != "ready" || r.stat("a", "pause-time-left") != 0 || stats.Uint("total-jobs") != 1 || stats.Text("draining") != "false" || r.stat("b", "current-jobs-ready") != 0 {
		t.Errorf("after %s something has changed", after)
	}
}

// tryAll tries every change, by its form and by its call.
func tryAll(t *testing.T, change func(*http.Request), cfg func(*Config), want int) {
	t.Helper()
	r := newRig(t, cfg)
	r.put("a", 1, 0, "body")
	if len(writes) != len(changes) || len(calls) != len(changes) {
		t.Fatalf("%d forms and %d calls for %d changes", len(writes), len(calls), len(changes))
	}
	for _, ch := range changes {
		form, call := fill.Replace(ch.path), fill.Replace(apiRoot+ch.api())
		a := r.send(http.MethodPost, form, "application/x-www-form-urlencoded", writes[ch.path], change)
		if a.StatusCode != want {
			t.Errorf("POST %s: %s, want %d", form, a.Status, want)
		}
		a = r.send(http.MethodPost, call, "application/json", calls[ch.api()], change)
		if a.StatusCode != want {
			t.Errorf("POST %s: %s, want %d", call, a.Status, want)
		}
		unchanged(t, r, form)
	}
}

func TestNothingIsChangedByAConsoleThatIsReadOnly(t *testing.T) {
	tryAll(t, nil, nil, http.StatusForbidden)
}

func TestNothingIsChangedBySomebodyUnknown(t *testing.T) {
	tryAll(t, func(r *http.Request) { r.Header.Del("Authorization") }, writable, http.StatusForbidden)
}

func TestNothingIsChangedByWhoMayOnlyLook(t *testing.T) {
	only := func(cfg *Config) {
		cfg.Write, cfg.Writes = true, func(user string) bool { return user == "bob" }
	}
	tryAll(t, nil, only, http.StatusForbidden)
	r := newRig(t, only)
	r.put("a", 1, 0, "x")
	as := func(user string) func(*http.Request) {
		return func(req *http.Request) { req.SetBasicAuth(user, "x") }
	}
	for user, writes := range map[string]bool{"ann": false, "bob": true} {
		for path, form := range map[string]string{"/tubes/a": "/tubes/a/pause", "/tubes/a/jobs": "/jobs/bury", "/jobs/1": "/jobs/1/bury", "/put": "/put"} {
			if a := r.send(http.MethodGet, path, "", "", as(user)); a.StatusCode != http.StatusOK || strings.Contains(a.text, `"`+form+`"`) != writes {
				t.Errorf("%s is shown %s: %s\n%s", user, path, a.Status, a.text)
			}
		}
	}
	if a := r.send(http.MethodPost, "/tubes/a/pause", "application/x-www-form-urlencoded", "seconds=9", as("bob")); a.StatusCode != http.StatusSeeOther {
		t.Errorf("who may write: %s", a.Status)
	}
	if log := r.log.String(); !strings.Contains(log, "who=bob") {
		t.Errorf("%s", log)
	}
}

func TestNothingIsChangedByPagesOfOtherSites(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"cross-site": func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"same-site":  func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"origin":     func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "http://evil.example") },
		"null":       func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "null") },
		"other port": func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "http://127.0.0.1:9") },
	} {
		t.Run(name, func(t *testing.T) { tryAll(t, change, writable, http.StatusForbidden) })
	}
}

func TestNothingIsChangedByARequestThatOnlyReads(t *testing.T) {
	r := newRig(t, writable)
	r.put("a", 1, 0, "body")
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		for _, ch := range changes {
			for _, path := range []string{ch.path + "?" + writes[ch.path], apiRoot + ch.api() + "?" + writes[ch.path]} {
				r.send(method, fill.Replace(path), "application/x-www-form-urlencoded", writes[ch.path], func(req *http.Request) {
					req.SetBasicAuth("ann", "secret")
				})
			}
			unchanged(t, r, method+" "+ch.path)
		}
	}
}

func TestJSONIsTakenAsSuchOnly(t *testing.T) {
	r := newRig(t, writable)
	r.put("a", 1, 0, "body")
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""} {
		if a := r.send(http.MethodPost, apiRoot+"/tubes/a/flush", kind, `{}`, nil); a.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", kind, a.Status)
		}
	}
	for _, text := range []string{`{"nosuch":1}`, `[]`, `{"ids":[1]}`, `{"count":-1}`, `{"count":4294967296}`, `{`, `{"count":1}{"count":1}`, `{"count":1} x`} {
		if a := r.call("/tubes/a/kick", text); a.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", text, a.Status)
		}
	}
	unchanged(t, r, "JSON that is not wanted")
}

func TestWhatIsDestroyedIsCountedAndAskedForOnceMore(t *testing.T) {
	r := newRig(t, writable)
	for range 1234 {
		r.put("a", 1, 0, "x")
	}
	for _, ch := range changes {
		if !ch.asks {
			continue
		}
		form := values("id", "1", "id", "2", "state", "ready", "count", "50")
		a := r.post(fill.Replace(ch.path), form)
		if a.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", ch.path, a.Status)
		}
		switch {
		case ch.path == "/tubes/{tube}/flush":
			wantText(t, a.text, "This deletes 1,234 jobs of tube a")
		case ch.path == "/tubes/{tube}/delete":
			wantText(t, a.text, "This deletes 50 jobs of tube a (ready, at most 50)")
		case ch.path == "/jobs/delete":
			wantText(t, a.text, "This deletes 2 jobs : jobs 1, 2")
		case ch.path == "/jobs/{id}/delete":
			wantText(t, a.text, "This deletes 1 job : job 1")
		default:
			wantText(t, a.text, "would refuse all new jobs")
		}
		if n := r.stat("a", "current-jobs-ready"); n != 1234 {
			t.Fatalf("%s has left %d jobs", ch.path, n)
		}
	}
	a := r.post("/tubes/a/delete", values("state", "ready", "count", "50", "confirmed", "yes"))
	if a.StatusCode != http.StatusSeeOther || r.stat("a", "current-jobs-ready") != 1184 {
		t.Errorf("%s, and %d jobs are left", a.Status, r.stat("a", "current-jobs-ready"))
	}
}

func TestEveryAttemptAtAChangeIsLoggedAndShown(t *testing.T) {
	r := newRig(t, writable)
	r.put("a", 1, 0, "x")
	a := r.post("/tubes/a/pause", values("seconds", "60"))
	r.post("/tubes/nosuch/kick", values("count", "1"))
	r.call("/jobs/1/bury", "")
	log := r.log.String()
	for _, want := range []string{
		`level=WARN msg="console: change" who=ann from=127.0.0.1:5555 what=pause on="tube a" detail="60 s" result="paused for 1 m"`,
		`msg="console: change failed" who=ann from=127.0.0.1:5555 what=kick on="tube nosuch" detail="at most 1" result="not found"`,
		`msg="console: change" who=ann from=127.0.0.1:5555 what=bury on="job 1" detail="" result="1 job buried"`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	wantText(t, r.page("/actions"), "ann", "127.0.0.1:5555", "pause tube a 60 s", "paused for 1 m", "kick tube nosuch at most 1", "not found", "1 job buried")
	wantText(t, r.page(a.Header.Get("Location")), "tube a paused for 1 m")
	for range maxActions + 10 {
		r.post("/tubes/a/pause", values("seconds", "0"))
	}
	if n := len(r.console.actions.all()); n != maxActions {
		t.Errorf("%d actions are remembered", n)
	}
	if page := r.page("/actions"); strings.Contains(plain(page), "nosuch") {
		t.Error("an action is shown that is long ago")
	}
}

func TestRequestsBeyondTheBoundAreRefused(t *testing.T) {
	r := newRig(t, nil)
	entered, leave := make(chan struct{}), make(chan struct{})
	h := r.console.guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	}))
	ask := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/", nil))
		return w.Code
	}
	done := make(chan int)
	for range parallelRequests {
		go func() { done <- ask() }()
		<-entered
	}
	if code := ask(); code != http.StatusServiceUnavailable {
		t.Errorf("one more: %d", code)
	}
	close(leave)
	for range parallelRequests {
		if code := <-done; code != http.StatusOK {
			t.Errorf("within the bound: %d", code)
		}
	}
}

// slowReader takes nothing of an answer before it is told to.
type slowReader struct {
	*httptest.ResponseRecorder
	begun, read chan struct{}
}

func (s *slowReader) Write(p []byte) (int, error) {
	s.begun <- struct{}{}
	<-s.read
	return s.ResponseRecorder.Write(p)
}

func TestWhoReadsSlowlyHoldsUpNobody(t *testing.T) {
	r := newRig(t, nil)
	id := r.put("a", 1, 0, "body")
	begun, read := make(chan struct{}), make(chan struct{})
	done := make(chan int)
	open := func(path string) {
		w := &slowReader{httptest.NewRecorder(), begun, read}
		go func() {
			r.console.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
			done <- w.Code
		}()
		<-begun
	}
	body := fmt.Sprintf("/jobs/%d/body", id)
	for range parallelDownloads {
		open(body)
	}
	for range parallelRequests {
		open("/put")
	}
	wantText(t, r.page("/put"), "Put a job")
	if a := r.get(body); a.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a download too many: %s", a.Status)
	}
	close(read)
	for range parallelDownloads + parallelRequests {
		if code := <-done; code != http.StatusOK {
			t.Errorf("read slowly: %d", code)
		}
	}
	if a := r.get(body); a.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %s", a.Status)
	}
}
