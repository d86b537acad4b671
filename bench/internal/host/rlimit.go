//go:build !freebsd

package host

import "golang.org/x/sys/unix"

// setRlimit raises a limit. The type of its fields differs between systems.
func setRlimit(l *unix.Rlimit, n uint64) {
	l.Cur = n
	l.Max = max(l.Max, n)
}
