package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// guard lets permitted requests through, a bounded number at a time, each for a bounded
// time, and sets the headers that all answers have.
func (c *Console) guard(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.refuse(w, r, http.StatusForbidden, "this request comes from a page of another site")
	}))
	next = origin.Handler(next)
	slots := make(chan struct{}, parallelRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		// Not no-referrer: with that, browsers hide from the console that its own forms are its own.
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !c.knownHost(r) {
			c.refuse(w, r, http.StatusMisdirectedRequest, "this server does not go by the name in the address: use its address, or give the name to --http-host")
			return
		}
		if strings.HasPrefix(r.URL.Path, c.cfg.Base+"/static/") {
			next.ServeHTTP(w, r) // from memory, and without a slot: a page that got its answer gets its style, too
			return
		}
		timer := time.NewTimer(queueTime)
		defer timer.Stop()
		select {
		case slots <- struct{}{}:
			// A slow reader keeps nobody from asking: answers are made in memory.
			made := sync.OnceFunc(func() { <-slots })
			defer made()
			w = &answering{w, made}
		case <-timer.C:
			h.Set("Retry-After", "2")
			c.refuse(w, r, http.StatusServiceUnavailable, "too many requests at a time")
			return
		case <-r.Context().Done():
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), requestTime)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// answering calls made when the answer to a request begins to be written.
type answering struct {
	http.ResponseWriter
	made func()
}

// WriteHeader implements [http.ResponseWriter].
func (a *answering) WriteHeader(status int) {
	a.made()
	a.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (a *answering) Write(p []byte) (int, error) {
	a.made()
	return a.ResponseWriter.Write(p)
}

// knownHost tells whether the request came under a name of this host. A page of another
// site can have its own name point here, and would then be the same site to a browser.
func (c *Console) knownHost(r *http.Request) bool {
	name := host(r.Host)
	if name == "localhost" {
		return true
	}
	if ip := net.ParseIP(name); ip != nil {
		if ip.IsLoopback() {
			return true
		}
		if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			return ip.Equal(net.ParseIP(host(local.String())))
		}
		return false
	}
	return slices.ContainsFunc(c.cfg.Hosts, func(h string) bool { return host(h) == name && name != "" })
}

// refuse answers a request that gets no further.
func (c *Console) refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		c.log.Warn("console: refused", "why", why, "method", r.Method, "path", line(r.URL.Path, nameRunes), "from", r.RemoteAddr, "host", line(r.Host, nameRunes))
	}
	fail(w, r, status, why)
}

// fail answers with a status and a reason, where there is no page to show it on.
func fail(w http.ResponseWriter, r *http.Request, status int, why string) {
	if strings.Contains(r.URL.Path, apiRoot+"/") {
		writeJSON(w, status, apiError{why})
		return
	}
	http.Error(w, why, status)
}

// Errors of requests.
var (
	errNoPage       = errors.New("there is no such page")
	errReadOnly     = errors.New("this console is read-only: it was not started with leave to change anything")
	errNobody       = errors.New("nobody has proved to be somebody: changes need a name and a password, or a certificate")
	errTooManyTubes = errors.New("the tubes are still being counted: try again in a moment")
	errDownloads    = errors.New("too many downloads at a time: try again in a moment")
	errTooBig       = errors.New("the body is too large to be shown here: read it with trellis peek --raw")
)

// Gate lets only those through to a console who have the token that was made for it: in the
// query of the first request, from which it moves to a cookie, or in an Authorization header.
// It is for a console that listens on loopback, where everybody on the machine can connect.
type Gate struct {
	token  [32]byte // its SHA-256
	cookie string
	next   http.Handler
}

// NewGate makes a token and a gate for it. The name tells apart the cookies of several
// consoles on one host, for which ports are the same to a browser.
func NewGate(name string, next http.Handler) (g *Gate, token string) {
	var b [32]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	token = base64.RawURLEncoding.EncodeToString(b[:])
	return &Gate{token: sha256.Sum256([]byte(token)), cookie: "trellis-console-" + name, next: next}, token
}

// ServeHTTP implements [http.Handler].
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if token := r.URL.Query().Get("token"); token != "" && r.Method == http.MethodGet && g.right(token) {
		http.SetCookie(w, &http.Cookie{
			Name: g.cookie, Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		})
		// Out of the address, and so of the history and of what is copied.
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer")
		// A browser takes two slashes at the beginning for the name of another site.
		http.Redirect(w, r, "/"+strings.TrimLeft(r.URL.EscapedPath(), "/"), http.StatusSeeOther)
		return
	}
	if cookie, err := r.Cookie(g.cookie); err == nil && g.right(cookie.Value) {
		g.next.ServeHTTP(w, r)
		return
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && g.right(token) {
		g.next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	fail(w, r, http.StatusUnauthorized, "open the address that trellis console has printed: it has a token in it")
}

func (g *Gate) right(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1
}
