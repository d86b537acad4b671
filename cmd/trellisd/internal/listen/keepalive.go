package listen

import (
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// inheritedTCP is a TCP socket that somebody else has opened. Package net would
// give what it accepts from it timings of its own, of a few seconds.
type inheritedTCP struct {
	*net.TCPListener
	keepAlive net.KeepAliveConfig
}

func (l *inheritedTCP) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	// It fails for a connection that has ended meanwhile, which shows in other ways.
	_ = c.SetKeepAliveConfig(l.keepAlive)
	return c, nil
}

// keepAliveOf reads the timings of keep-alive that a TCP socket has, if it is
// turned on or not: on what is accepted it always is.
func keepAliveOf(socket syscall.Conn) (net.KeepAliveConfig, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return net.KeepAliveConfig{}, err
	}
	var values [3]int
	controlErr := raw.Control(func(fd uintptr) {
		for i, option := range []int{tcpKeepIdle, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT} {
			if values[i], err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option); err != nil {
				return
			}
		}
	})
	if controlErr != nil {
		return net.KeepAliveConfig{}, controlErr
	}
	return net.KeepAliveConfig{
		Enable:   true,
		Idle:     time.Duration(values[0]) * time.Second,
		Interval: time.Duration(values[1]) * time.Second,
		Count:    values[2],
	}, os.NewSyscallError("getsockopt", err)
}
