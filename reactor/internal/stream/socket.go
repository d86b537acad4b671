package stream

import (
	"fmt"

	"golang.org/x/sys/unix"

	"trellis/reactor/internal/sockets"
)

// Read reads what fd, a socket, has. n is 0 at the end of the input.
func Read(fd int, p []byte) (n int, err error) {
	if s := sockets.Of(fd); s != nil {
		return s.Read(fd, p)
	}
	for {
		n, err = unix.Read(fd, p)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// Reset has the system throw away what fd, a socket, has not sent, and tell the peer so, when it is closed.
func Reset(fd int) {
	if s := sockets.Of(fd); s != nil {
		s.ResetOnClose(fd)
		return
	}
	// It may have ended, and then there is nobody to tell.
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

// Polled reports whether the poller has the socket, and is not about to close it.
func (s *Stream) Polled() bool { return s.polled }

// LeavePoller notes that the poller is about to close the socket.
func (s *Stream) LeavePoller() { s.polled = false }

// Ended reports whether the client has sent its last, which may not have been read yet.
func (s *Stream) Ended() bool { return s.intake >= finished }

// Outlives reports whether the stream goes on with a descriptor that the poller does not have: see Detach.
func (s *Stream) Outlives() bool { return s.intake == detached }

// End notes that the client has sent its last.
func (ss *Streams) End(s *Stream) {
	if s.intake == paused || s.intake == resumed && s.Unread() {
		// The poller has noticed the end without reading what comes before it.
		ss.needPending(s).In.Rest = true
	}
	s.intake = finished
}

// Unread reports whether the socket has, or may have, input that was not read.
func (s *Stream) Unread() bool { return unread(int(s.fd)) }

// Awaited reports whether the poller reads the client, and nothing is pending: the client is to send more.
func (s *Stream) Awaited() bool {
	return s.intake <= resumed && (s.pending == nil || s.pending.In.Empty() && s.pending.out.empty())
}

// Quiet reports whether the client has taken all, and nothing that it has sent waits, here or in the socket. It may
// send more.
func (ss *Streams) Quiet(s *Stream) bool {
	if s.intake >= finished || s.Owes() || ss.Sendable(s) || s.HasInput() {
		return false
	}
	if sim := sockets.Of(int(s.fd)); sim != nil {
		return !sim.Unread(int(s.fd))
	}
	var p [1]byte
	n, _, _ := unix.Recvfrom(int(s.fd), p[:], unix.MSG_PEEK)
	return n <= 0
}

// readSocket reads once what the socket has. p is valid until the streams read again. At the end of the input, and
// when there is nothing, it is nil, with an error if the socket is broken.
func (ss *Streams) readSocket(s *Stream) (p []byte, err error) {
	if ss.read == nil {
		ss.read = make([]byte, ReadSize)
	}
	n, err := Read(int(s.fd), ss.read)
	switch {
	case n > 0:
		ss.Counts.BytesIn.Add(uint64(n))
		return ss.read[:n], nil
	case err == unix.EAGAIN:
		err = nil
	}
	return nil, err
}

// ReadRest reads once what comes before the end of the input, and keeps it. When it finds nothing more, the input has
// no Rest any more. It reports false when the client is gone.
func (ss *Streams) ReadRest(s *Stream) (ok bool) {
	in := &ss.needPending(s).In
	p, err := ss.readSocket(s)
	if p == nil {
		in.Rest = false
		return err == nil
	}
	p, err = ss.Decrypt(s, p)
	in.Rest = err == nil
	if len(p) > 0 {
		in.Add(p, &ss.Counts)
	}
	return err != ErrLost
}

// ReadLast reads once what the client has sent, of which nothing more is read. It is valid until the streams read
// again, and nil if nothing has come.
func (ss *Streams) ReadLast(s *Stream) []byte {
	p, _ := ss.readSocket(s)
	if p != nil {
		p, _ = ss.Decrypt(s, p)
	}
	return p
}

// pause has the poller, which has the socket, not read it for now, or read it again.
func (ss *Streams) pause(s *Stream, on bool) error {
	want, change := resumed, ss.cfg.Poller.Resume
	if on {
		want, change = paused, ss.cfg.Poller.Pause
	}
	if want == s.intake || want == resumed && s.intake == reading {
		return nil
	}
	if err := change(int(s.fd)); err != nil {
		return fmt.Errorf("pausing or resuming to read from it: %w", err)
	}
	s.intake = want
	return nil
}

// awaitOutput has the loop told, once, when the client takes output.
func (ss *Streams) awaitOutput(s *Stream) error {
	if s.kind == OnTrunk {
		ss.cfg.Owner.Channel(s).awaitOutput(ss, s)
		return nil
	}
	if err := ss.cfg.Poller.AwaitOutput(int(s.fd), ss.awaited[s.fd] == s); err != nil {
		return fmt.Errorf("waiting until it takes output: %w", err)
	}
	ss.awaited[s.fd] = s
	return nil
}

// forgetOutput ends the interest in whether the client takes output. Its descriptor is about to be closed.
func (ss *Streams) forgetOutput(s *Stream) {
	if ss.awaited[s.fd] == s {
		delete(ss.awaited, s.fd)
		ss.cfg.Poller.ForgetOutput(int(s.fd))
	}
}

// Writable notes that a socket takes output again, perhaps: NextWritable returns its stream. It reports false for
// a socket of another.
func (ss *Streams) Writable(fd int) bool {
	s := ss.awaited[int32(fd)]
	if s != nil {
		ss.writable = append(ss.writable, s)
	}
	return s != nil
}

// HasWritable reports whether NextWritable would return a stream.
func (ss *Streams) HasWritable() bool { return len(ss.writable) > 0 }

// NextWritable returns a stream whose client takes output again, perhaps, nil if there is none.
func (ss *Streams) NextWritable() *Stream {
	last := len(ss.writable) - 1
	if last < 0 {
		return nil
	}
	s := ss.writable[last]
	ss.writable[last] = nil
	ss.writable = ss.writable[:last]
	return s
}

// BeginTurn begins to send what is pending of a stream of NextWritable that is not closed. It reports false when
// the client is gone.
func (ss *Streams) BeginTurn(s *Stream) (ok bool) {
	s.pending.armed = false
	if s.kind != OnTLS {
		return true
	}
	t := ss.cfg.Owner.TLS(s)
	t.sendHeld(ss, s)
	return !t.broken
}

// EndTurn ends the turn of a stream of NextWritable.
func (ss *Streams) EndTurn(s *Stream) {
	if s.kind == OnTrunk {
		ss.cfg.Owner.Channel(s).trunk.Next(ss)
	}
}

// Detach makes the socket one that the poller does not close: the poller is about to close its own.
func (ss *Streams) Detach(s *Stream) error {
	if s.kind != OnTrunk {
		fd, err := ss.cfg.Owner.Duplicate(int(s.fd))
		if err != nil {
			return err
		}
		ss.forgetOutput(s)
		s.fd = int32(fd)
	}
	s.intake = detached
	if s.pending != nil {
		s.pending.armed = false
	}
	return nil
}

// EndOutput tells a client on a socket that no more comes.
func (s *Stream) EndOutput() error {
	if sim := sockets.Of(int(s.fd)); sim != nil {
		return sim.EndOutput(int(s.fd))
	}
	return unix.Shutdown(int(s.fd), unix.SHUT_WR)
}

// ResetOnClose has the client told, when the stream is closed, that it was not answered.
func (ss *Streams) ResetOnClose(s *Stream) {
	if s.kind == OnTrunk {
		ss.cfg.Owner.Channel(s).resets = true
		return
	}
	Reset(int(s.fd))
}

// Close closes the stream, of which Discard has dropped what was pending. With reset, what a socket has not sent is
// thrown away.
func (ss *Streams) Close(s *Stream, reset bool) {
	if s.kind == OnTrunk {
		h := ss.cfg.Owner.Channel(s)
		h.trunk.line.End(s, h.resets)
		return
	}
	if reset {
		Reset(int(s.fd))
	}
	if s.intake == detached {
		sockets.Close(int(s.fd))
		ss.cfg.Owner.DescriptorFreed()
	}
	if s.polled {
		ss.cfg.Poller.Close(int(s.fd))
	}
}
