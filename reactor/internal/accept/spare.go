package accept

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"trellis/reactor/internal/sockets"
)

// spare is a descriptor that is held in reserve for a connection that is to go on under another descriptor. All loops
// use it.
type spare struct {
	mu sync.Mutex
	fd int // 0 for none; guarded by mu
}

// hold opens the descriptor in reserve, if that is possible. mu is held, or nobody else uses it yet.
func (p *spare) hold() {
	if p.fd == 0 {
		if fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			p.fd = fd
		}
	}
}

// release is hold's opposite.
func (p *spare) release() {
	if p.fd != 0 {
		_ = unix.Close(p.fd)
		p.fd = 0
	}
}

// duplicate returns a copy of fd, at the cost of the one in reserve when no other is left.
func (p *spare) duplicate(fd int) (int, error) {
	if s := sockets.Of(fd); s != nil {
		return s.Duplicate(fd)
	}
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

// duplicate returns a copy of fd that no other program inherits and that is none of the standard streams.
func duplicate(fd int) (int, error) {
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
}
