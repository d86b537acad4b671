//go:build linux || freebsd

package worker

import "syscall"

// dieWithParent asks the system to kill the program when this process ends, also in the moment before it has begun. On
// Linux it is the thread that counts; Go ends a thread only with a goroutine that is locked to it, and here is none.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
