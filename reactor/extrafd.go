package reactor

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// extraFD is a descriptor that is held so that there is one to be had when a
// connection outlives gnet's descriptor. All loops use it.
type extraFD struct {
	mu sync.Mutex
	fd int // 0 for none; guarded by mu
}

// hold makes sure that the extra one is held, if that is possible. mu is held, or nobody else
// uses it yet.
func (p *extraFD) hold() {
	if p.fd == 0 {
		if fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			p.fd = fd
		}
	}
}

// release is hold's opposite.
func (p *extraFD) release() {
	if p.fd != 0 {
		_ = unix.Close(p.fd)
		p.fd = 0
	}
}

// duplicate returns a copy of fd, at the cost of the extra one when no other
// descriptor is left.
func (p *extraFD) duplicate(fd int) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := duplicate(fd)
	if err != nil && p.fd != 0 {
		p.release()
		return duplicate(fd)
	}
	p.hold()
	return n, err
}

// duplicate returns a copy of fd that is not inherited by other programs and is
// none of the standard streams.
func duplicate(fd int) (int, error) {
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
}
