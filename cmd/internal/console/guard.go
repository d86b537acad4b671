package console

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"trellis/cmd/internal/hosts"
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
		if !hosts.Own(r, c.cfg.Hosts) {
			c.refuse(w, r, http.StatusMisdirectedRequest, hosts.Refusal)
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

// refuse answers a request that gets no further.
func (c *Console) refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		c.log.Warn("console: refused", "why", why, "method", r.Method, "path", line(r.URL.Path, nameRunes),
			"from", r.RemoteAddr, "host", line(r.Host, nameRunes))
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
	errNoPage       = &requestError{http.StatusNotFound, "there is no such page"}
	errReadOnly     = forbidden("this console is read-only: it was not started with leave to change anything")
	errNobody       = forbidden("nobody has proved to be somebody: changes need a name and a password, or a certificate")
	errReader       = forbidden("you may look, and change nothing: an operator can name you in --console-writers")
	errTooManyTubes = busy("the tubes are still being counted: try again in a moment")
	errDownloads    = busy("too many downloads at a time: try again in a moment")
	errTooBig       = &requestError{
		http.StatusRequestEntityTooLarge, "the body is too large to be shown here: read it with trellis peek --raw",
	}
)

func forbidden(why string) error { return &requestError{http.StatusForbidden, why} }

func busy(why string) error { return &requestError{http.StatusServiceUnavailable, why} }
