package reactor

import (
	"math"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultMaxOutput is the least that Config.MaxOutput is, in bytes, where it is 0: three
// times a list of 100,000 tubes with the longest names.
const DefaultMaxOutput = 64 << 20

// DefaultGatewayMemory is Config.GatewayMemory in bytes where that is 0.
const DefaultGatewayMemory = 256 << 20

// maxCopied is how many bytes of replies that were not taken, and of bodies that have come in part,
// Detach copies for all clients together.
const maxCopied = 64 << 20

// maxRecorded is how many bytes of records Record makes at most.
const maxRecorded = 64 << 20

// MaxLoops is how many loops a server can have, because of gnet.
const MaxLoops = 255

// DefaultLoops is the number of event loops where Config.Loops is 0: one for each
// processor that the process may use, because a loop is busy with system calls most
// of its time, but at most 8, because the loops share the engine's shards.
func DefaultLoops() int { return min(runtime.GOMAXPROCS(0), 8) }

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

// maxUnauthenticated is how many clients may be connected that have not authenticated yet. Where few connections are
// allowed, it is a quarter of them. Each loop has an equal share. In a crowd, the oldest is disconnected for the
// newest, as among TLS handshakes.
const maxUnauthenticated = 1000

// authTimeout is how long a client may take to authenticate.
const authTimeout = 10 * time.Second

const (
	// drainTimeout is how long a client that has sent its last, or has quit, may
	// take nothing of what could be sent to it before the connection is cut.
	drainTimeout = 5 * time.Minute

	// serverTimeouts is how many times as long such a connection is kept while it is the server that
	// delays. Its client may be gone, and would have a slot for as long as a disk hangs.
	serverTimeouts = 12

	// lingerTime is how long a client that has quit, and was sent everything, may
	// leave its connection open.
	lingerTime = 10 * time.Second
)

// retirePause is between two looks at a retired connection whose client does nothing.
const retirePause = time.Second

// finishTime is how long a Hold waits for commands of which a part was executed. Nobody else could go on with them, but
// all others wait meanwhile.
const finishTime = 200 * time.Millisecond
