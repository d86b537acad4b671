package web

import (
	"errors"
	"net/http"
	"sync/atomic"
)

// Readiness is whether the service does all that it should. The zero Readiness
// says that it is starting. Any goroutine may call its methods.
type Readiness struct {
	reason atomic.Pointer[func() error]
}

var errStarting = errors.New("starting")

// ReadyUnless says that the service is ready from now on, unless reason returns why it is
// not. Any goroutine may call reason, at any time.
func (r *Readiness) ReadyUnless(reason func() error) { r.reason.Store(&reason) }

// NotReady says that the service is not ready from now on, and why, in a few words.
func (r *Readiness) NotReady(reason string) {
	err := errors.New(reason)
	r.ReadyUnless(func() error { return err })
}

// Err tells why the service is not ready, nil if it is.
func (r *Readiness) Err() error {
	if reason := r.reason.Load(); reason != nil {
		return (*reason)()
	}
	return errStarting
}

// ServeHTTP answers 200 while the service is ready, else 503 and the reason.
func (r *Readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if err := r.Err(); err != nil {
		answer(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	answer(w, http.StatusOK, "ok")
}
