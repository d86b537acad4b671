package console

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// gated is a console behind a gate.
type gated struct {
	t     *testing.T
	gate  *Gate
	url   string // without a slash at the end
	link  string // by which a browser enters
	token string
	clock *atomic.Int64 // seconds that are added to the time
}

func newGated(t *testing.T) *gated {
	r := newRig(t, nil)
	gate, link := NewGate([]Config{r.console.cfg})
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		gate.Run(ctx) // which ends its connections
	})
	g := &gated{t: t, gate: gate, clock: new(atomic.Int64)}
	began := time.Now()
	gate.now = func() time.Time { return began.Add(time.Duration(g.clock.Load()) * time.Second) }
	server := httptest.NewServer(gate)
	t.Cleanup(server.Close)
	g.url, g.link = server.URL, server.URL+link
	_, g.token, _ = strings.Cut(link, "token=")
	return g
}

// ask makes a request, changed by change, and does not follow where it leads.
func (g *gated) ask(method, path string, change func(*http.Request)) *http.Response {
	g.t.Helper()
	req, err := http.NewRequest(method, g.url+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		g.t.Fatal(err)
	}
	res.Body.Close()
	return res
}

// enter begins a session, and returns its cookie.
func (g *gated) enter() *http.Cookie {
	g.t.Helper()
	res := g.ask(http.MethodGet, strings.TrimPrefix(g.link, g.url), nil)
	if res.StatusCode != http.StatusSeeOther || len(res.Cookies()) != 1 {
		g.t.Fatalf("%s %v", res.Status, res.Cookies())
	}
	return res.Cookies()[0]
}

func with(c *http.Cookie) func(*http.Request) {
	return func(r *http.Request) { r.AddCookie(c) }
}

func bearing(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// opens reports whether a cookie opens a page.
func (g *gated) opens(c *http.Cookie) bool {
	return g.ask(http.MethodGet, g.gate.base+"/put", with(c)).StatusCode == http.StatusOK
}

func TestTheTokenOpensAConsoleAndNothingElse(t *testing.T) {
	g := newGated(t)
	base := g.gate.base
	session := g.enter()
	wrong := strings.ToUpper(g.token)
	for _, res := range []*http.Response{
		g.ask(http.MethodGet, base+"/", nil), g.ask(http.MethodGet, "/", nil), g.ask(http.MethodGet, base+"/?token="+wrong, nil),
		g.ask(http.MethodGet, base+"/?token=", nil), g.ask(http.MethodPost, base+"/?token="+g.token, nil), g.ask(http.MethodGet, base+"/tubes", bearing(wrong)),
		g.ask(http.MethodGet, base+"/tubes", bearing(session.Value)), g.ask(http.MethodGet, base+"/?token="+session.Value, nil),
		g.ask(http.MethodGet, base+"/tubes", with(&http.Cookie{Name: sessionCookie, Value: g.token})),
		g.ask(http.MethodGet, base+"/tubes", with(&http.Cookie{Name: sessionCookie, Value: wrong})),
		g.ask(http.MethodGet, base+"/tubes", with(&http.Cookie{Name: sessionCookie, Value: session.Value[1:]})),
	} {
		if res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s", res.Request.URL, res.Status)
		}
	}
	for path, want := range map[string]string{
		base + "/tubes": base + "/tubes", "/tubes": base + "/tubes", "/": base + "/", base: base + "/",
		"//evil.example/": base + "/evil.example/", "///evil.example": base + "/evil.example", base + "//evil.example": base + "/evil.example",
	} {
		res := g.ask(http.MethodGet, path+"?token="+g.token, nil)
		if to := res.Header.Get("Location"); res.StatusCode != http.StatusSeeOther || to != want {
			t.Errorf("%s: %s to %s", path, res.Status, to)
		}
	}
	to, err := url.Parse(g.ask(http.MethodGet, `/\\evil.example/?token=`+g.token, nil).Header.Get("Location"))
	if err != nil || to.Host != "" || !strings.HasPrefix(to.Path, base) {
		t.Errorf("%v, %v", to, err)
	}
	if !session.HttpOnly || session.SameSite != http.SameSiteStrictMode || session.Path != base+"/" || session.Secure || session.MaxAge <= 0 {
		t.Errorf("%v", session)
	}
	for _, res := range []*http.Response{
		g.ask(http.MethodGet, base+"/tubes", with(session)), g.ask(http.MethodGet, base+"/api/v1/tubes", bearing(g.token)),
		g.ask(http.MethodGet, "/api/v1/tubes", bearing(g.token)), // scripts need not know where browsers are led
	} {
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", res.Request.URL, res.Status)
		}
	}
}

// A browser has one set of cookies for all ports of a host, as the jar does.
func TestConsolesOnOneHostDoNotShareSessions(t *testing.T) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	visit := func(url string) int {
		t.Helper()
		res, err := browser.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	var seen []string
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Values("Cookie")...)
		http.SetCookie(w, &http.Cookie{Name: sessionCookie, Value: "stranger", Path: "/"})
	}))
	t.Cleanup(stranger.Close)
	a, b := newGated(t), newGated(t)
	pages := []string{a.url + a.gate.base + "/tubes", b.url + b.gate.base + "/tubes"}
	for _, link := range []string{a.link, b.link} {
		if status := visit(link); status != http.StatusOK {
			t.Errorf("%s: %d", link, status)
		}
		for _, path := range []string{"/", "/tubes", "/api/v1/tubes"} {
			visit(stranger.URL + path)
		}
	}
	for _, cookie := range seen {
		if cookie != sessionCookie+"=stranger" {
			t.Errorf("another server on this host was sent %q", cookie)
		}
	}
	for range 2 {
		for _, page := range pages {
			if status := visit(page); status != http.StatusOK {
				t.Errorf("%s, beside another console: %d", page, status)
			}
		}
	}
	if b.opens(a.enter()) || a.opens(b.enter()) {
		t.Error("one console's session opens the other")
	}
}

func TestSessionsEnd(t *testing.T) {
	g := newGated(t)
	after := func(d time.Duration) { g.clock.Add(int64(d / time.Second)) }
	idle, busy := g.enter(), g.enter()
	if idle.Value == busy.Value {
		t.Fatal("two sessions have one secret")
	}
	after(sessionIdle - time.Second)
	if !g.opens(busy) {
		t.Error("a session has ended too soon")
	}
	after(time.Second)
	if g.opens(idle) || !g.opens(busy) {
		t.Error("a session that nobody uses goes on, or one that is used has ended")
	}
	for end := sessionTime - sessionIdle; end > 0; end -= sessionIdle / 2 {
		if after(min(end, sessionIdle/2)); !g.opens(busy) && end > sessionIdle/2 {
			t.Fatal("a session that is used has ended")
		}
	}
	if g.opens(busy) {
		t.Error("a session goes on for ever")
	}
	first := g.enter()
	var last *http.Cookie
	for range maxSessions {
		after(time.Second)
		last = g.enter()
	}
	if g.opens(first) || !g.opens(last) || len(g.gate.sessions) > maxSessions {
		t.Errorf("%d sessions", len(g.gate.sessions))
	}
	again := g.ask(http.MethodGet, strings.TrimPrefix(g.link, g.url), with(last)).Cookies()[0]
	if g.opens(last) || !g.opens(again) {
		t.Error("who enters again keeps the session from before")
	}
}

func TestWhoLogsOutEndsTheSession(t *testing.T) {
	g := newGated(t)
	session, other := g.enter(), g.enter()
	out := g.gate.base + logOutPath
	page := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, g.gate.base+"/put", nil)
	r.Host = "localhost"
	r.AddCookie(session)
	if g.gate.ServeHTTP(page, r); !containsAction(page.Body.String(), out) {
		t.Errorf("a page has no form that ends the session:\n%s", page.Body)
	}
	if page := newRig(t, nil).page("/put"); strings.Contains(page, "Log out") {
		t.Error("a console without sessions has a form that ends them")
	}
	for name, change := range map[string]func(*http.Request){
		"another site": func(r *http.Request) { r.AddCookie(session); r.Header.Set("Sec-Fetch-Site", "same-site") },
		"another port": func(r *http.Request) { r.AddCookie(session); r.Header.Set("Origin", "http://127.0.0.1:9") },
		"another name": func(r *http.Request) { r.AddCookie(session); r.Host = "evil.example" },
		"nobody":       nil,
	} {
		if res := g.ask(http.MethodPost, out, change); res.StatusCode < 400 {
			t.Errorf("%s: %s", name, res.Status)
		}
	}
	if res := g.ask(http.MethodGet, out, with(session)); res.StatusCode != http.StatusNotFound || !g.opens(session) {
		t.Errorf("a session is ended by a link: %s", res.Status)
	}
	res := g.ask(http.MethodPost, out, with(session))
	if res.StatusCode != http.StatusOK || len(res.Cookies()) != 1 || res.Cookies()[0].MaxAge >= 0 {
		t.Errorf("%s %v", res.Status, res.Cookies())
	}
	if g.opens(session) {
		t.Error("the secret of a session that was ended opens pages")
	}
	if !g.opens(other) {
		t.Error("another session has ended too")
	}
}
