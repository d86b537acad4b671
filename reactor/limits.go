package reactor

import (
	"math"

	"golang.org/x/sys/unix"
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
