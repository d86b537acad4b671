package reactor

import "golang.org/x/sys/unix"

// peerUID is the user as whom the peer of a Unix socket has connected.
func peerUID(fd int) (int, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
