package clustertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// sockDiagByFamily asks for one socket, or some: see sock_diag(7), as for what follows.
const (
	sockDiagByFamily = 20

	diagRequest = unix.SizeofNlMsghdr + 56 // inet_diag_req_v2
	diagInode   = unix.SizeofNlMsghdr + 68 // in the answer, inet_diag_msg
)

// inodeOf is the kernel's number of the TCP socket with these ends, of IPv4. It is asked of
// the kernel by netlink, because the table in /proc takes long when there are many sockets.
func inodeOf(local, remote netip.AddrPort) (uint32, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	b := make([]byte, diagRequest)
	ne := binary.NativeEndian
	ne.PutUint32(b, diagRequest)
	ne.PutUint16(b[4:], sockDiagByFamily)
	ne.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[unix.SizeofNlMsghdr:]
	r[0], r[1] = unix.AF_INET, unix.IPPROTO_TCP
	ne.PutUint32(r[4:], ^uint32(0)) // in any state
	binary.BigEndian.PutUint16(r[8:], local.Port())
	binary.BigEndian.PutUint16(r[10:], remote.Port())
	from, to := local.Addr().Unmap().As4(), remote.Addr().Unmap().As4()
	copy(r[12:], from[:])
	copy(r[28:], to[:])
	ne.PutUint64(r[48:], ^uint64(0)) // no cookie
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	switch {
	case err != nil:
		return 0, err
	case n >= unix.SizeofNlMsghdr+4 && ne.Uint16(answer[4:]) == unix.NLMSG_ERROR:
		return 0, fmt.Errorf("sock_diag: %w", unix.Errno(-int32(ne.Uint32(answer[unix.SizeofNlMsghdr:]))))
	case n < diagInode+4:
		return 0, errors.New("sock_diag: a short answer")
	}
	return ne.Uint32(answer[diagInode:]), nil
}
