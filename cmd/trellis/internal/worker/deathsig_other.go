//go:build !linux && !freebsd

package worker

import "syscall"

// dieWithParent does nothing: the system has no such signal, and the minder does the work.
func dieWithParent(*syscall.SysProcAttr) {}
