package replica

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/entry"
	"trellis/binlog/replica/member"
	"trellis/binlog/vfs"
)

// Options configure a Node.
type Options struct {
	// Dir is the node's directory. The caller has locked it, and it has the mark of
	// package member. A founder has written the initial
	// snapshot into Dir/snapshots; a node that joins has none.
	Dir string

	// New makes an entry log if there is none. It is set until the node has once been a
	// member for certain, and never again: see entrylog.ErrNoLog.
	New bool

	// Self is this node's id, as the mark says.
	Self member.ID

	// SnapshotBytes is how many bytes of entries have to be behind the last snapshot
	// before the next one is taken; a snapshot that is longer than that counts with its own
	// length. Zero means DefaultSnapshotBytes.
	SnapshotBytes int64

	// Queue is what is replicated.
	Queue Queue

	// Bodies is how many bytes bodies may take in memory, if Queue's standbys are Spilling: the others are in files of
	// Dir/bodies only. Zero means that all are in memory, as they are again after a start without it.
	Bodies int64

	// Clock is the machine's. Nil means the system's.
	Clock Clock

	// FS is the file system. Nil means the operating system's.
	FS vfs.FS

	// Free tells how many bytes are free on the disk of Dir. It may take its time. Nil
	// means that nobody knows, and that the disk is never nearly full.
	Free func() (int64, error)

	// Observer is told how long things take. Nil means nobody.
	Observer Observer

	// Newest is the latest version of entries that this node reads, as it says. Zero means
	// entry.Newest; a test may have an older program.
	Newest uint32

	// Log takes what an operator wants to read. Nil means nothing.
	Log *slog.Logger

	// Ticks come once in each Tick. Nil means the system's. They are raft's only measure of time, so a test
	// that sends them can stop a node, or make its clock run fast.
	Ticks <-chan time.Time

	// SegmentSize is that of the entry log, in bytes. Zero means its default.
	SegmentSize int64

	// Reserve is how many bytes of the disk the node keeps for what must be recorded when the disk is full.
	// Zero means 256 MiB, which is more than twice what may be uncommitted.
	Reserve int64

	retireTime time.Duration // how long Queue.Retire may take; zero means maxRetire
	hangGrace  time.Duration // how long an end may take; zero means hangGrace
}

func (o *Options) setDefaults() {
	o.SnapshotBytes = cmp.Or(o.SnapshotBytes, DefaultSnapshotBytes)
	o.Clock = cmp.Or[Clock](o.Clock, systemClock{time.Now()})
	o.FS = cmp.Or[vfs.FS](o.FS, vfs.OS{})
	o.Observer = cmp.Or[Observer](o.Observer, nobody{})
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Newest = cmp.Or(o.Newest, entry.Newest)
	o.retireTime = cmp.Or(o.retireTime, maxRetire)
	o.Reserve = cmp.Or(o.Reserve, reserve)
	o.hangGrace = cmp.Or(o.hangGrace, hangGrace)
}

// Observer is told how long things take. Its methods must not block.
type Observer interface {
	// Stored tells how long a store took: one write and one sync, of all that waited. The
	// writer calls it.
	Stored(took time.Duration)
	// Committed tells how long a batch of this node's leadership was on its way, from its
	// proposal to its commit. The applier calls it.
	Committed(took time.Duration)
}

type nobody struct{}

func (nobody) Stored(time.Duration)    {}
func (nobody) Committed(time.Duration) {}

// DefaultSnapshotBytes is 1 GiB.
const DefaultSnapshotBytes = 1 << 30

// Times of a node, in ticks.
const (
	// Tick is how long a tick of raft is.
	Tick = 50 * time.Millisecond

	electionTicks      = 10  // a follower that hears no leader for that long, or up to twice as long, campaigns
	heartbeatTicks     = 1   // between two heartbeats of a leader
	commitTimeoutTicks = 40  // a leader that cannot commit for that long steps down
	stampTicks         = 200 // an idle leader lets the followers know the time that often
	backoffTicks       = 40  // after stepping down; doubled each time
	maxBackoff         = 160
	steadyTicks        = 1200 // a leadership that lasts that long ends the doubling
	stallTicks         = 20   // a disk that has not answered for that long stalls
)

// maxRetire is how long the end of a queue's service may take. It takes milliseconds.
const maxRetire = 10 * time.Second

// Bounds of memory.
const (
	maxBatch       = 512 << 10 // bytes of a batch, but for one record
	longBatch      = 256 << 10 // bytes of a batch that never waits to become longer
	maxInFlight    = 4         // batches, and read rounds
	maxFlightBytes = 2 << 20   // of batches on their way, but for one
	maxUncommitted = 64 << 20  // bytes of records that are not committed, but for one; less with Options.Bodies
	maxMessage     = 1 << 20   // bytes of entries in a message, but for one entry
	maxSent        = 16 << 20  // bytes of entries on their way to a follower, but for one
	maxApplying    = 16 << 20  // bytes of entries that the applier has, but for one
	maxLag         = 64 << 20  // bytes of entries that a follower holds and has not applied
	maxStoring     = 1024      // messages that wait for the disk, when more of peers are discarded
)

// Transport brings messages to the other members. It never blocks, and may lose, delay
// and repeat messages, but not change them. package wire has one. All methods may be
// called from any goroutine.
type Transport interface {
	// Send sends a message to the member m.To. Nobody changes m any more.
	Send(m *raftpb.Message)
	// SendSnapshot sends what open writes, and then m. Handler.SnapshotSent tells the
	// end. If m has a context, open learns from told what the receiver has.
	SendSnapshot(m *raftpb.Message, open func(w io.Writer, told func() ([]byte, error)) error)
	// Arrived is how many bytes have come from a member by way of appends since some time, with
	// those of messages that are not complete.
	Arrived(from member.ID) uint64
	// SetPeers tells who belongs to the cluster as of an entry, this node included. The
	// index is 0, and there are none, while nothing was applied.
	SetPeers(index uint64, ms []member.Member)
}

// Errors by which callers decide.
var (
	// ErrNotLeader tells that a request went to a node that does not lead.
	ErrNotLeader = errors.New("this node does not lead the cluster")

	// ErrClosed tells that the node has ended.
	ErrClosed = errors.New("the node has ended")

	// ErrRemoved tells that the node was removed from the cluster. It is the end of Run.
	ErrRemoved = errors.New("this node was removed from the cluster; to add it again, empty its directory")

	// ErrForgot tells that the node has lost what it had acknowledged. It is the end of Run, and
	// the node must not vote any more.
	ErrForgot = errors.New("this node has lost entries that it had acknowledged: " +
		"its directory is an older copy, or its machine was rolled back; " +
		"remove it from the cluster, empty its directory, and add it again")

	// ErrBodies tells that a body cannot be read which has to be in memory, because Options.Bodies is 0. It is the end of
	// Run.
	ErrBodies = errors.New("all bodies are to be in memory: " +
		"start this node with --body-memory, and it needs none of them; " +
		"or remove it from the cluster, empty its directory, and add it again")

	// ErrHung tells that the disk does not answer. It is the end of Run.
	ErrHung = errors.New("the disk does not answer")

	// ErrStuck tells that the queue does not end its service. It is the end of Run.
	ErrStuck = errors.New("the server does not answer")

	// ErrDiverged tells that an entry contradicts the state of this node. It is the end of
	// Run: a node that goes on could only diverge further.
	ErrDiverged = errors.New("the entries contradict what this node has")
)
