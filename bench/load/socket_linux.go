package load

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sysRead, sysWrite and the poller's wait enter the kernel without telling Go's scheduler. They do not block, or only
// for a bounded time on a thread that belongs to one worker. The scheduler would hand the processor to another thread
// after 20 microseconds, which costs more than the call and disturbs what is measured.

func sysRead(fd int32, p []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return int(n), e
}

func sysWrite(fd int32, p []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return int(n), e
}

func newSocket(family int) (int, error) {
	return unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

func bindSource(fd int, ip [4]byte) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
		return err
	}
	return unix.Bind(fd, &unix.SockaddrInet4{Addr: ip})
}

// A poller waits for descriptors on epoll, level-triggered. Its owner alone uses it.
type poller struct {
	fd     int
	buf    [256]unix.EpollEvent
	coarse bool // the kernel has no epoll_pwait2 (before 5.11)
}

func (p *poller) open() (err error) {
	p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	return err
}

func (p *poller) close() { unix.Close(p.fd) }

func interest(write bool) uint32 {
	if write {
		return unix.EPOLLIN | unix.EPOLLOUT
	}
	return unix.EPOLLIN
}

func (p *poller) add(fd int32, key uint32, write bool) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: interest(write), Fd: int32(key)})
}

func (p *poller) arm(fd int32, key uint32, write bool) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, int(fd), &unix.EpollEvent{Events: interest(write), Fd: int32(key)})
}

// wait returns the number of events after at most ns nanoseconds.
func (p *poller) wait(ns int64) int {
	const coarse = 10e6 // from here on, a millisecond more or less does not matter
	var n uintptr
	e := unix.ENOSYS
	if ns > 0 && ns < coarse && !p.coarse {
		ts := unix.NsecToTimespec(ns)
		n, _, e = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.buf[0])),
			uintptr(len(p.buf)), uintptr(unsafe.Pointer(&ts)), 0, 0)
		p.coarse = e == unix.ENOSYS
	}
	if e == unix.ENOSYS {
		// Rounded down: for less than a millisecond the caller spins, which costs CPU time and keeps the precision.
		n, _, e = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.buf[0])),
			uintptr(len(p.buf)), uintptr(max(ns, 0)/1e6), 0, 0)
	}
	if e != 0 {
		return 0
	}
	return int(n)
}

// event returns what the i-th event of the last wait says.
func (p *poller) event(i int) (key uint32, readable, writable bool) {
	ev := &p.buf[i]
	const ended = unix.EPOLLHUP | unix.EPOLLERR
	return uint32(ev.Fd), ev.Events&(unix.EPOLLIN|ended) != 0, ev.Events&(unix.EPOLLOUT|ended) != 0
}

// tuneThread makes the calling thread ready to carry a worker: timeouts as fine as the kernel can.
func tuneThread() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // the default is 50 microseconds; without it, latencies are coarser
}

func threadCPU() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 0
	}
	return ts.Nano()
}
