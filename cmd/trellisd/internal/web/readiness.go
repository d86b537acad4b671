package web

import (
	"errors"
	"sync/atomic"
)

// Readiness is whether the service does all that it should. The zero Readiness
// says that it is starting. Any goroutine may call its methods.
type Readiness struct {
	reason atomic.Pointer[error]
}

var (
	errStarting = errors.New("starting")
	isReady     error
)

// Ready says that the service is ready from now on.
func (r *Readiness) Ready() { r.reason.Store(&isReady) }

// NotReady says why it is not from now on, in a word or a few.
func (r *Readiness) NotReady(reason string) {
	err := errors.New(reason)
	r.reason.Store(&err)
}

// Err tells why the service is not ready, nil if it is.
func (r *Readiness) Err() error {
	if e := r.reason.Load(); e != nil {
		return *e
	}
	return errStarting
}
