package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"trellis/cmd/internal/hosts"
)

const (
	// A session ends when its browser has asked nothing for sessionIdle, and after sessionTime.
	sessionIdle = 30 * time.Minute
	sessionTime = 12 * time.Hour
	// maxSessions is how many sessions there may be. One more ends that which was used least lately.
	maxSessions = 16

	sessionCookie = "trellis-session"
	logOutPath    = "/logout" // below a gate's base
)

// Gate lets only those through to consoles who have the token that was made for it. Scripts send
// it in an Authorization header. A browser has it in the query of its first request, and gets a
// session of its own, whose secret is a cookie. A Gate is for a console that listens on loopback,
// where everybody on the machine can connect. Make one with NewGate.
//
// All ports of a host get the cookies of each other, so that two consoles could overwrite each
// other's, and any other server there could read them. Therefore all pages are below a path that
// is made anew for each gate, and a browser sends the cookie to that path only. (The prefix
// __Host- would forbid that.)
type Gate struct {
	base     string
	token    [sha256.Size]byte // of the token
	consoles *Several
	origin   *http.CrossOriginProtection
	now      func() time.Time

	mu       sync.Mutex
	sessions map[[sha256.Size]byte]*session // by the sums of their secrets; guarded by mu
}

type session struct{ began, lastUse time.Time }

// ended reports whether a session has ended by itself.
func (s *session) ended(now time.Time) bool {
	return now.Sub(s.lastUse) >= sessionIdle || now.Sub(s.began) >= sessionTime
}

// NewGate makes the consoles of at least one server, and a gate in front of them. Link leads a
// browser through it: a path, and a query "token=" with the token.
func NewGate(cfgs []Config) (g *Gate, link string) {
	g = &Gate{
		base: "/" + secret()[:16], origin: http.NewCrossOriginProtection(), now: time.Now,
		sessions: make(map[[sha256.Size]byte]*session),
	}
	token := secret()
	g.token = sha256.Sum256([]byte(token))
	cfgs = slices.Clone(cfgs)
	for i := range cfgs {
		cfgs[i].Base, cfgs[i].logOut = g.base, g.base+logOutPath
	}
	g.consoles = NewSeveral(cfgs)
	return g, g.base + "/?token=" + token
}

// secret is what nobody can guess.
func secret() string {
	var b [32]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Run measures until ctx is done: see Console.Run.
func (g *Gate) Run(ctx context.Context) { g.consoles.Run(ctx) }

// ServeHTTP implements [http.Handler].
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if token := r.URL.Query().Get("token"); token != "" && r.Method == http.MethodGet && g.right(token) {
		g.logIn(w, r)
		return
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && g.right(token) {
		g.consoles.ServeHTTP(w, g.below(r))
		return
	}
	cookies := r.CookiesNamed(sessionCookie)
	switch {
	case !slices.ContainsFunc(cookies, g.admits):
		fail(w, r, http.StatusUnauthorized, "open the address that trellis console has printed: it has a token in it")
	case r.URL.Path == g.base+logOutPath && r.Method == http.MethodPost:
		g.logOut(w, r, cookies)
	default:
		g.consoles.ServeHTTP(w, r)
	}
}

// right reports whether a token is that of the gate.
func (g *Gate) right(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1
}

// below is a script's request with a path below the base, of which scripts need not know.
func (g *Gate) below(r *http.Request) *http.Request {
	if strings.HasPrefix(r.URL.Path, g.base+"/") {
		return r
	}
	r = r.Clone(r.Context())
	r.URL.Path = g.base + r.URL.Path
	if r.URL.RawPath != "" {
		r.URL.RawPath = g.base + r.URL.RawPath
	}
	return r
}

// logIn begins a session, and leads to the page without the token: out of the address, and so
// of the history and of what is copied.
func (g *Gate) logIn(w http.ResponseWriter, r *http.Request) {
	key, now := secret(), g.now()
	g.mu.Lock()
	g.end(r.CookiesNamed(sessionCookie))
	if len(g.sessions) >= maxSessions {
		g.endOldest()
	}
	g.sessions[sha256.Sum256([]byte(key))] = &session{began: now, lastUse: now}
	g.mu.Unlock()
	http.SetCookie(w, g.cookie(r, key, int(sessionTime/time.Second)))
	w.Header().Set("Referrer-Policy", "no-referrer")
	// A browser takes two slashes at the beginning for the name of another site.
	path := strings.TrimPrefix(r.URL.EscapedPath(), g.base)
	http.Redirect(w, r, g.base+"/"+strings.TrimLeft(path, "/"), http.StatusSeeOther)
}

// cookie is the one of a session. It ends after so many seconds, at once if these are negative.
func (g *Gate) cookie(r *http.Request, key string, seconds int) *http.Cookie {
	return &http.Cookie{
		Name: sessionCookie, Value: key, Path: g.base + "/", MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	}
}

// end ends the sessions of cookies. The caller holds mu.
func (g *Gate) end(cookies []*http.Cookie) {
	for _, c := range cookies {
		delete(g.sessions, sha256.Sum256([]byte(c.Value)))
	}
}

// endOldest ends the session that was used least lately. The caller holds mu.
func (g *Gate) endOldest() {
	var oldest [sha256.Size]byte
	var used time.Time
	for sum, s := range g.sessions {
		if used.IsZero() || s.lastUse.Before(used) {
			oldest, used = sum, s.lastUse
		}
	}
	delete(g.sessions, oldest)
}

// admits reports whether a cookie is that of a session, which is used then.
func (g *Gate) admits(c *http.Cookie) bool {
	sum, now := sha256.Sum256([]byte(c.Value)), g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sessions[sum]
	if s == nil {
		return false
	}
	if s.ended(now) {
		delete(g.sessions, sum)
		return false
	}
	s.lastUse = now
	return true
}

// logOut ends a session: its secret opens nothing any more, whoever has it.
func (g *Gate) logOut(w http.ResponseWriter, r *http.Request, cookies []*http.Cookie) {
	if err := g.origin.Check(r); err != nil || !hosts.Own(r, nil) {
		fail(w, r, http.StatusForbidden, "this request comes from a page of another site")
		return
	}
	g.mu.Lock()
	g.end(cookies)
	g.mu.Unlock()
	http.SetCookie(w, g.cookie(r, "", -1))
	http.Error(w, "You are logged out. To come back, open the address that trellis console has printed.", http.StatusOK)
}
