//go:build darwin || freebsd

package load

import "golang.org/x/sys/unix"

func sysRead(fd int32, p []byte) (int, unix.Errno) { return result(unix.Read(int(fd), p)) }

func sysWrite(fd int32, p []byte) (int, unix.Errno) { return result(unix.Write(int(fd), p)) }

func result(n int, err error) (int, unix.Errno) {
	if err == nil {
		return n, 0
	}
	if e, ok := err.(unix.Errno); ok {
		return -1, e
	}
	return -1, unix.EIO
}

func newSocket(family int) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, err
	}
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func bindSource(fd int, ip [4]byte) error {
	return unix.Bind(fd, &unix.SockaddrInet4{Addr: ip})
}

// A poller waits for descriptors on kqueue, level-triggered. Its owner alone uses it.
type poller struct {
	fd   int
	buf  [256]unix.Kevent_t
	keys map[uint64]uint32 // descriptor to key
}

func (p *poller) open() (err error) {
	p.keys = make(map[uint64]uint32)
	p.fd, err = unix.Kqueue()
	return err
}

func (p *poller) close() { unix.Close(p.fd) }

func (p *poller) add(fd int32, key uint32, write bool) error {
	p.keys[uint64(fd)] = key
	var ev [1]unix.Kevent_t
	unix.SetKevent(&ev[0], int(fd), unix.EVFILT_READ, unix.EV_ADD)
	if _, err := unix.Kevent(p.fd, ev[:], nil, nil); err != nil {
		return err
	}
	if write {
		return p.arm(fd, key, true)
	}
	return nil
}

func (p *poller) arm(fd int32, _ uint32, write bool) error {
	var ev [1]unix.Kevent_t
	flags := unix.EV_DELETE
	if write {
		flags = unix.EV_ADD
	}
	unix.SetKevent(&ev[0], int(fd), unix.EVFILT_WRITE, flags)
	_, err := unix.Kevent(p.fd, ev[:], nil, nil)
	return err
}

// wait returns the number of events after at most ns nanoseconds.
func (p *poller) wait(ns int64) int {
	ts := unix.NsecToTimespec(max(ns, 0))
	n, err := unix.Kevent(p.fd, nil, p.buf[:], &ts)
	if err != nil {
		return 0
	}
	return n
}

// event returns what the i-th event of the last wait says.
func (p *poller) event(i int) (key uint32, readable, writable bool) {
	ev := &p.buf[i]
	return p.keys[uint64(ev.Ident)], ev.Filter == unix.EVFILT_READ, ev.Filter == unix.EVFILT_WRITE
}

func tuneThread() {}

// threadCPU is not known here, and so neither is how full the generator's core is.
func threadCPU() int64 { return 0 }
