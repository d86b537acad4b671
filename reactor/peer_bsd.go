//go:build darwin || freebsd

package reactor

import "golang.org/x/sys/unix"

// peerUID is the user as whom the peer of a Unix socket has connected. It is what
// getpeereid(3) asks for.
func peerUID(fd int) (int, error) {
	const solLocal = 0 // SOL_LOCAL
	cred, err := unix.GetsockoptXucred(fd, solLocal, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
