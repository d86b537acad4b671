package reactor

import (
	"math"

	"golang.org/x/sys/unix"

	"trellis/codec"
)

// DefaultMaxOutput is the least that Config.MaxOutput is, in bytes, where it is 0: three
// times a list of 100,000 tubes with the longest names.
const DefaultMaxOutput = 64 << 20

// reservedDescriptors are left for what is no client's connection: listeners, the
// loops' own, the binlog's files, its directory and its compaction, the HTTP
// listener and those who look at it.
const reservedDescriptors = 128

// DefaultMaxConnections is the limit where Config.MaxConnections is 0: what the
// process's limit on descriptors leaves after a reserve of 128, or of a quarter where
// that is less.
func DefaultMaxConnections() int {
	n := descriptorLimit()
	return int(max(1, n-min(reservedDescriptors, n/4)))
}

func descriptorLimit() int64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return math.MaxInt32
	}
	return int64(min(uint64(l.Cur), math.MaxInt32))
}

// takeSlot counts a connection that is about to be, unless there are too many.
func (s *Server) takeSlot() bool {
	if s.open.Add(1) > int64(s.cfg.MaxConnections) {
		s.open.Add(-1)
		return false
	}
	return true
}

// refuse answers a connection that is one too many, and closes it.
func (a *acceptor) refuse(fd int) {
	a.server.accepting.over.Add(1)
	if n, ok := a.server.refusals.Allow(); ok {
		a.server.log.Warn("a connection is refused, there are too many",
			"listener", a.listener.Addr(), "limit", a.server.cfg.MaxConnections, "unreported", n)
	}
	// A new connection has room for the answer.
	answer := refusal
	if a.tls != nil {
		answer = tlsRefusal
	}
	_, _ = unix.Write(fd, answer)
	_ = unix.Shutdown(fd, unix.SHUT_WR)
	// If the system found something unread when the connection is closed, it would
	// tell the peer so, who might then not see what was sent to it.
	var arrived [4 << 10]byte
	_, _ = readFD(fd, arrived[:])
	_ = unix.Close(fd)
}

var refusal = []byte(codec.ReplyOutOfMemory)

// tlsRefusal is the alert internal_error, RFC 8446, section 6: something like a
// shortage of memory keeps the server from going on. Nothing can be said encrypted before the handshake.
var tlsRefusal = []byte{21, 3, 3, 0, 2, 2, 80}
