package binlog

import (
	"log/slog"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// Limits and the default of Options.SegmentSize.
const (
	DefaultSegmentSize = 10 << 20
	MinSegmentSize     = 4 << 10
	MaxSegmentSize     = 1 << 30
)

// SyncPolicy says when a log syncs what it has written: see SyncEvery.
type SyncPolicy = record.SyncPolicy

// The policies, beside those of SyncEvery.
const (
	SyncAlways = record.SyncAlways // before a commit
	SyncNever  = record.SyncNever  // when the kernel thinks fit
)

// SyncEvery is the policy to sync at most that long after a write. If d is not positive, it is SyncAlways.
func SyncEvery(d time.Duration) SyncPolicy { return SyncPolicy(max(d, 0)) }

// Options configure a Log. Observer is called on the goroutine that has written or
// synced, with the log's locks held; see [Hooks].
type Options struct {
	// SegmentSize is the size in bytes of a segment's file, rounded up to 4096
	// and kept between MinSegmentSize and MaxSegmentSize. Zero means
	// DefaultSegmentSize. A record that is larger gets a larger file.
	SegmentSize int64

	// MaxPending is how many bytes are appended and not yet written before appends are refused
	// with ErrBusy. Zero means the constant of that name.
	MaxPending int64

	// Sync says what committed means: with SyncAlways, synced to the disk, otherwise
	// handed to the kernel.
	Sync SyncPolicy

	// SkipDamaged makes Open accept a log with damage: what is sound is taken
	// over into new segments, and all the old files are kept in a sub-directory.
	SkipDamaged bool

	// Indexes makes restarts read what indexes say of segments, and no bodies. It is for owners
	// that load bodies.
	Indexes bool

	// Progress is called about once a second while Open and Replay read, and once
	// at the end of each.
	Progress func(Progress)

	// Observer is told of every commit. Nil means nobody.
	Observer Observer

	// Log takes what an operator should know. Nil means nobody.
	Log *slog.Logger

	// FS is the file system. Nil means the operating system's.
	FS vfs.FS
}

// Observer is told what commits cost. Its methods are called on the committing
// goroutine, must not block and should not allocate.
type Observer interface {
	Committed(records int, bytes int64, write time.Duration)
	Synced(d time.Duration)
}

// Hooks are what a running log calls. Those that are nil do nothing. OnCommit and
// OnFail are called on the goroutine that has written or synced, which still holds
// the log's locks for that: they must not block, and must not call Close, which
// waits for those locks. OnRoom and Migrate are called without any lock of the log;
// OnRoom must not block and must not call Close either.
type Hooks struct {
	// OnCommit is called after every commit with the new value of Committed, on
	// the goroutine that made it: the log's own or one that is in Flush. Two
	// calls may overlap.
	OnCommit func(Pos)

	// OnRoom is called after an append was refused with ErrRoom, once for all that
	// were, when it makes sense to try again: there is room, or the append will say
	// why there is none. It is called on a goroutine of the log's.
	OnRoom func()

	// OnFail is called once, when a write or a sync has failed. The process
	// should say so and end.
	OnFail func(error)

	// Migrate is called by the log's compaction for a job of which a full record with
	// that body was read at that place. If the owner's job of that id has its
	// latest full record in that segment, the owner calls Move for it, under the same lock
	// as every other change of that job, and returns what Move returned.
	// Otherwise it does nothing. After ErrRoom, compaction waits without any lock
	// and calls Migrate again. The body is valid until Migrate returns. Without Migrate there
	// is no compaction.
	//
	// A place without an offset says that the record could not be read: the owner moves the job if it has the body.
	Migrate func(id uint64, place journal.Place, body []byte) error

	// Jobs returns the owner's jobs and tombstones that have their latest full record in a segment, which is
	// damaged. It may take long. Compaction calls it, with no lock of the log.
	Jobs func(segment uint32) []uint64

	// Fetched is told what Load has asked for, up to 32 bodies at a time, on goroutines of the log's that hold
	// none of its locks. Two calls may overlap. Without it nothing can be loaded.
	Fetched func([]journal.Fetched)
}
