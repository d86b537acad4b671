package cluster

import (
	"os"

	"golang.org/x/sys/unix"
)

// free tells how many bytes are free on the disk of a directory, without what is kept for root.
func free(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
