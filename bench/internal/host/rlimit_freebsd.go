package host

import "golang.org/x/sys/unix"

// setRlimit raises a limit. The type of its fields differs between systems.
func setRlimit(l *unix.Rlimit, n uint64) {
	l.Cur = int64(n)
	l.Max = max(l.Max, int64(n))
}
