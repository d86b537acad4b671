package main

import (
	"errors"
)

// Exit codes. Those that beanstalkd has too mean the same.
const (
	exitOK          = 0
	exitFailed      = 1  // the service failed
	exitUsage       = 5  // the command line, or a file that it names, has a mistake
	exitBinlog      = 10 // the binlog's directory cannot be used
	exitUserLookup  = 32
	exitUnknownUser = 33
	exitChangeUser  = 34
	exitSystem      = 50 // the system does not say what it is
	exitListen      = 111
	exitBySignal    = 128 // plus the number of the second signal to stop
)

// exitError is an error that ends the process with a code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// exitWith gives err, which may be nil, a code.
func exitWith(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code, err}
}

func exitCode(err error) int {
	var e *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &e):
		return e.code
	default:
		return exitFailed
	}
}

// errStoppedTwice ends a process that was told to stop while it was stopping.
var errStoppedTwice = errors.New("second signal, not waiting for clients")
