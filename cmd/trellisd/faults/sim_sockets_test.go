package faults_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trellis/reactor"
)

// sockets are those that a process has: its reactor reads and writes sockets of the system. What comes over the
// network's connections is brought to them, and back, while its loop sleeps.
type sockets struct {
	network *network
	process *process
	epoll   int // reports which of them have output

	mu      sync.Mutex        // guards what follows; it comes before the network's
	bridges map[int32]*bridge // by descriptor
	full    []*bridge         // whose socket has not taken all input
	buffer  [64 << 10]byte
	over    bool

	news struct {
		sync.Mutex            // it comes behind the network's
		bridges    []*bridge  // of whose connections something has come, or left
		sleepers   []*sleeper // of all loops
	}
}

// bridge brings what comes over a connection of the network to a socket, and back.
type bridge struct {
	conn  *conn
	fd    int
	near  int    // the other end until the reactor has copied it; -1 is none
	input []byte // that the socket has not taken
	end   error  // that follows
	told  bool   // sockets.news has it; guarded by that
	ended bool   // the socket was told of the end
	half  bool   // the socket sends no more
	used  bool   // judge has looked
	role  int64  // process.changes when the bridge was made
	began time.Time
}

func newSockets(p *process) *sockets {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		panic(err)
	}
	return &sockets{network: p.machine.cluster.net, process: p, epoll: fd, bridges: map[int32]*bridge{}}
}

// sleeper is where a loop of the process sleeps.
type sleeper struct {
	sockets *sockets
	token   chan struct{} // has one when it should look again
	woken   atomic.Bool
}

func (s *sockets) sleeper() reactor.Sleeper {
	l := &sleeper{sockets: s, token: make(chan struct{}, 1)}
	s.news.Lock()
	defer s.news.Unlock()
	s.news.sleepers = append(s.news.sleepers, l)
	return l
}

// Sleep implements reactor.Sleeper.
func (l *sleeper) Sleep() {
	for {
		l.sockets.turn()
		if l.woken.Swap(false) {
			return
		}
		<-l.token
	}
}

// Wake implements reactor.Sleeper.
func (l *sleeper) Wake() {
	l.woken.Store(true)
	wake(l.token)
}

// add makes a bridge between a connection and a socket.
func (s *sockets) add(c *conn, fd, near int) *bridge {
	b := &bridge{conn: c, fd: fd, near: near, role: s.process.changes.Load(), began: time.Now()}
	s.mu.Lock()
	s.bridges[int32(fd)] = b
	s.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN|unix.EPOLLRDHUP)
	s.mu.Unlock()
	return b
}

func (s *sockets) watch(op, fd int, events uint32) {
	if err := unix.EpollCtl(s.epoll, op, fd, &unix.EpollEvent{Fd: int32(fd), Events: events}); err != nil {
		panic(err)
	}
}

// tell has the bridge looked at. It does not wait.
func (s *sockets) tell(b *bridge) {
	s.news.Lock()
	defer s.news.Unlock()
	if !b.told {
		b.told = true
		s.news.bridges = append(s.news.bridges, b)
	}
	for _, l := range s.news.sleepers {
		wake(l.token)
	}
}

// turn brings what there is to the other end.
func (s *sockets) turn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.news.Lock()
	news := s.news.bridges
	s.news.bridges = nil
	for _, b := range news {
		b.told = false
	}
	s.news.Unlock()
	full := s.full
	s.full = nil
	moved := false
	for _, b := range append(full, news...) {
		moved = s.bring(b) || moved
	}
	var events [64]unix.EpollEvent
	n, _ := raw(unix.SYS_EPOLL_PWAIT, s.epoll, unsafe.Pointer(&events[0]), len(events))
	for _, e := range events[:max(0, n)] {
		if b := s.bridges[e.Fd]; b != nil {
			moved = s.fetch(b, e.Events) || moved
		}
	}
	if !moved {
		return
	}
	s.news.Lock()
	defer s.news.Unlock()
	for _, l := range s.news.sleepers {
		l.Wake()
	}
}

// bring brings to a socket what has come for it. It reports whether the reactor may find something new.
func (s *sockets) bring(b *bridge) (moved bool) {
	if s.bridges[int32(b.fd)] != b || b.ended {
		return false
	}
	if len(b.input) == 0 {
		b.input, b.end = b.conn.pull()
	}
	for len(b.input) > 0 {
		n, err := raw(unix.SYS_WRITE, b.fd, unsafe.Pointer(&b.input[0]), len(b.input))
		switch {
		case err == unix.EAGAIN:
			s.full = append(s.full, b)
			return moved
		case err != nil:
			b.input = nil // fetch sees the end
		default:
			b.input, moved = b.input[n:], true
		}
	}
	switch {
	case b.end == io.EOF:
		b.ended = true
		_ = unix.Shutdown(b.fd, unix.SHUT_WR)
		return true
	case b.end != nil:
		s.drop(b)
		return true
	}
	return moved
}

// fetch takes from a socket what it has sent, as far as the network takes it.
func (s *sockets) fetch(b *bridge, events uint32) (moved bool) {
	for b.conn.room() && !b.half {
		n, err := raw(unix.SYS_READ, b.fd, unsafe.Pointer(&s.buffer[0]), len(s.buffer))
		switch {
		case n > 0:
			b.conn.push(slices.Clone(s.buffer[:n]))
			moved = true
			if n < len(s.buffer) && events&unix.EPOLLRDHUP == 0 {
				return moved
			}
			continue
		case err == unix.EAGAIN:
			return moved
		}
		s.judge(b)
		switch {
		case err == nil && events&unix.EPOLLHUP == 0:
			b.half = true
			_ = b.conn.CloseWrite()
			s.watch(unix.EPOLL_CTL_MOD, b.fd, 0)
			return moved
		case err == nil:
			b.conn.finish()
		default:
			b.conn.reset()
		}
		s.drop(b)
		return true
	}
	if b.half && events&unix.EPOLLHUP != 0 {
		b.conn.finish()
		s.drop(b)
	}
	return moved
}

// judge looks at why the reactor ends a connection: clients of a member that lives and has not led get an answer to
// each command, if all that happens is that leaders change.
func (s *sockets) judge(b *bridge) {
	p := s.process
	c := p.machine.cluster
	lives := !p.killed.Load() && b.role == p.changes.Load() && b.role%2 == 0
	if c.plan.calm && b.conn.link.to == clientHost && b.end == nil && lives && !b.used {
		c.wrong("%s has ended the connection %s of a client", p.machine.name, b.conn.name)
	}
	b.used = true
}

// oldest is for how long the client is connected that is connected for longest.
func (s *sockets) oldest() (age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.bridges {
		if b.conn.link.to == clientHost && !b.half {
			age = max(age, time.Since(b.began))
		}
	}
	return age
}

// drop closes the socket of a bridge.
func (s *sockets) drop(b *bridge) {
	delete(s.bridges, int32(b.fd))
	_ = unix.Close(b.fd)
	b.conn.finish()
}

// raw is a system call that does not wait. The runtime is not told of it: it might have another goroutine run
// meanwhile.
func raw(number uintptr, fd int, p unsafe.Pointer, n int) (int, error) {
	r, _, errno := unix.RawSyscall6(number, uintptr(fd), uintptr(p), uintptr(n), 0, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(r), nil
}

// close closes all sockets: the process has ended.
func (s *sockets) close() {
	s.turn()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, b := range s.bridges {
		_ = unix.Close(b.fd)
	}
	_ = unix.Close(s.epoll)
}

// port is where clients connect: the reactor accepts on a socket of the system.
type port struct {
	*net.UnixListener
	network *network
	addr    string
}

// Addr is not that of the socket, whose name is another one in each run.
func (p *port) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: p.addr} }

func (p *port) Close() error {
	p.network.unlisten(p.addr)
	return p.UnixListener.Close()
}

// listen opens the port.
func (s *sockets) listen() (plain, tls []net.Listener, err error) {
	name := fmt.Sprintf("@trellis-sim-%d-%s", os.Getpid(), s.process.machine.name)
	l, err := net.Listen("unix", name)
	if err != nil {
		return nil, nil, err
	}
	from := s.network.listen(s.process.machine.name, s.process.machine.addr)
	go func() {
		for c := range from.arrivals {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: name})
			}
			if err != nil {
				_ = unix.Close(fd)
				c.reset()
				continue
			}
			s.begin(s.add(c, fd, -1))
		}
	}()
	return []net.Listener{&port{l.(*net.UnixListener), s.network, s.process.machine.addr}}, nil, nil
}

// begin has the bridge looked at whenever there is something.
func (s *sockets) begin(b *bridge) { b.conn.watch(func() { s.tell(b) }) }

// descriptor is that of a socket to which a connection is brought.
type descriptor int

var errRaw = errors.New("a descriptor is copied only")

func (d descriptor) Control(f func(fd uintptr)) error { f(uintptr(d)); return nil }
func (d descriptor) Read(func(uintptr) bool) error    { return errRaw }
func (d descriptor) Write(func(uintptr) bool) error   { return errRaw }

// SyscallConn has the connection go on over a socket of the system's, one of whose ends has the descriptor.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	c.net.mu.Lock()
	s := c.net.sockets[c.link.from]
	closed := c.closed
	c.net.mu.Unlock()
	if closed {
		return nil, net.ErrClosed
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	c.bridge = s.add(c, fds[0], fds[1])
	s.begin(c.bridge)
	return descriptor(fds[1]), nil
}

// leave closes the end that the reactor has copied.
func (b *bridge) leave() {
	if b.near >= 0 {
		_ = unix.Close(b.near)
		b.near = -1
	}
}
