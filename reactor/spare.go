package reactor

import (
	"sync"

	"golang.org/x/sys/unix"
)

// spare is a descriptor that is held so that there is one to be had when it
// matters. Its zero value with from set holds none.
type spare struct {
	from int // an open descriptor; the spare is a copy of it
	fd   int // 0 for none
}

// hold makes sure that the spare is held, and tells if it is.
func (p *spare) hold() bool {
	if p.fd == 0 {
		fd, err := duplicate(p.from)
		if err != nil {
			return false
		}
		p.fd = fd
	}
	return true
}

func (p *spare) release() {
	if p.fd != 0 {
		_ = unix.Close(p.fd)
		p.fd = 0
	}
}

// sharedSpare is a spare that all loops may use.
type sharedSpare struct {
	mu sync.Mutex
	spare
}

// duplicate returns a copy of fd, at the cost of the spare when no other
// descriptor is left.
func (p *sharedSpare) duplicate(fd int) (int, error) {
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
