package reactor

import (
	"fmt"

	"golang.org/x/sys/unix"

	"trellis/reactor/internal/buffer"
)

// read reads once what the socket has. It returns nil at the end of the input, and when
// there is nothing, with an error then.
func (c *conn) read() (*buffer.Buffer, error) {
	b := buffer.Get(readSize)
	n, err := readFD(int(c.fd), b.B)
	if n <= 0 {
		buffer.Release(b)
		return nil, err
	}
	b.B = b.B[:n]
	c.loop.counts.bytesIn.Add(uint64(n))
	return b, nil
}

// readFD reads what is there. n is 0 at the end of the input.
func readFD(fd int, p []byte) (n int, err error) {
	for {
		n, err = unix.Read(fd, p)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// pause has gnet, which has the socket, not read it for now, or read it again.
func (c *conn) pause(on bool) error {
	want, change := resumed, c.loop.gnet.Resume
	if on {
		want, change = paused, c.loop.gnet.Pause
	}
	if want == c.intake || want == resumed && c.intake == reading {
		return nil
	}
	if err := change(int(c.fd)); err != nil {
		return fmt.Errorf("pausing or resuming to read from it: %w", err)
	}
	c.intake = want
	return nil
}

// awaitOutput has the loop told, once, when the client takes output.
func (c *conn) awaitOutput() error {
	if c.listener.channel() {
		c.channel().awaitOutput()
		return nil
	}
	l := c.loop
	if err := l.gnet.AwaitOutput(int(c.fd), l.stalled[c.fd] == c); err != nil {
		return fmt.Errorf("waiting until it takes output: %w", err)
	}
	l.stalled[c.fd] = c
	return nil
}

// forgetOutput ends the interest in whether the client takes output. Its descriptor is about to
// be closed.
func (c *conn) forgetOutput() {
	if c.loop.stalled[c.fd] == c {
		delete(c.loop.stalled, c.fd)
		c.loop.gnet.ForgetOutput(int(c.fd))
	}
}

// keep makes the socket one that gnet does not close.
func (c *conn) keep() error {
	if c.listener.channel() {
		return nil
	}
	fd, err := c.loop.server.acceptor.Duplicate(int(c.fd))
	if err == nil {
		c.forgetOutput()
		c.fd = int32(fd)
	}
	return err
}

// resetOnClose has the system throw away what it has not sent, and tell the peer so, when the
// connection is closed.
func (c *conn) resetOnClose() {
	if c.listener.channel() {
		c.channel().resets = true
		return
	}
	resetFD(int(c.fd))
}

func resetFD(fd int) {
	// It may have ended, and then there is nobody to tell.
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

// closeSocket closes the socket of a connection that has ended, if that is not gnet's to do.
func (c *conn) closeSocket() {
	if c.listener.channel() {
		c.channel().close()
		return
	}
	l := c.loop
	if l.server.aborting.Load() {
		c.resetOnClose()
	}
	if c.intake == detached {
		_ = unix.Close(int(c.fd))
		l.server.acceptor.Freed()
	}
	if c.inGnet {
		l.gnet.Close(int(c.fd))
	}
}
