package reactor

import (
	"math"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trellis/codec"
)

// DefaultMaxOutput is how many bytes of replies may be pending for one client
// where nothing else is said: three times a list of 100,000 tubes with the
// longest names.
const DefaultMaxOutput = 64 << 20

// reservedDescriptors are left for what is no client's connection: listeners, the
// loops' own, the binlog's files, its directory and its compaction, the HTTP
// listener and those who look at it.
const reservedDescriptors = 128

// DefaultMaxConnections is the limit on connections of a server that is not told
// another: what the process's limit on descriptors leaves after a reserve of
// 128, or of a quarter where that is less.
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

// hasDescriptors tells whether there are enough for several connections to be on
// their way to a loop, each of which may take two.
func (s *Server) hasDescriptors() bool {
	return s.open.Load()+2*maxAdmitting < s.descriptors-reservedDescriptors
}

// takePlace counts a connection that is about to be, unless there are too many.
func (s *Server) takePlace() bool {
	if s.open.Add(1) > int64(s.cfg.MaxConnections) {
		s.open.Add(-1)
		return false
	}
	return true
}

// refuse answers a connection that is one too many, and closes it.
func (a *acceptor) refuse(nc net.Conn) {
	a.server.accepting.over.Add(1)
	if n, ok := a.server.refusals.allow(); ok {
		a.server.log.Warn("a connection is refused, there are too many",
			"listener", a.listener.Addr(), "limit", a.server.cfg.MaxConnections, "unreported", n)
	}
	// A new connection has room for the answer, so that nothing here blocks.
	_ = nc.SetDeadline(time.Now().Add(time.Second))
	_, _ = nc.Write(refusal)
	if c, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
	discardArrived(nc)
	_ = nc.Close()
}

// discardArrived reads what has arrived. If the system found it unread when the
// connection is closed, it would tell the peer so, who might then not see what
// was sent to it.
func discardArrived(nc net.Conn) {
	sc, ok := nc.(interface {
		SyscallConn() (syscall.RawConn, error)
	})
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		var b [4 << 10]byte
		_, _ = readFD(int(fd), b[:])
		return true
	})
}

var refusal = []byte(codec.ReplyOutOfMemory)
