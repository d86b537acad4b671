package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strings"
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
