package host

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// RaiseFileLimit makes sure that this process, and processes that it starts from then on, may have n files open. It
// sets the limit also when it suffices: Go has raised this process's own limit, and passes the lower one on to
// children until the limit is set.
func RaiseFileLimit(n int) error {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	have := lim.Max
	raise(&lim.Cur, n)
	raise(&lim.Max, n)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return fmt.Errorf("%d open files are needed, the limit is %d (ulimit -n): %w", n, have, err)
	}
	return nil
}

// raise raises a limit, whose type differs between systems.
func raise[T int64 | uint64](limit *T, n int) { *limit = max(*limit, T(n)) }
