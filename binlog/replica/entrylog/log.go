package entrylog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/vfs"
)

// Limits and defaults of Options.
const (
	DefaultSegmentSize = 16 << 20
	MinSegmentSize     = 4 << 10
	MaxSegmentSize     = 1 << 30
	DefaultCacheSize   = 64 << 20
)

// Options configure a Log.
type Options struct {
	// New makes a log if the directory holds none. A node sets it until its identity
	// is durable, and never again: see ErrNoLog.
	New bool

	// Snapshot is the durable snapshot that the node starts from: its index, term and
	// members. Nil means none. The log must hold what follows it.
	Snapshot *raftpb.SnapshotMetadata

	// OfferSnapshot answers raft.Storage.Snapshot, on raft's goroutine. Nil means that
	// no snapshot is ever available.
	OfferSnapshot func() (*raftpb.Snapshot, error)

	// SegmentSize is the size in bytes of a segment's file, between MinSegmentSize and
	// MaxSegmentSize. Zero means DefaultSegmentSize. A larger frame gets a larger file.
	SegmentSize int64

	// CacheSize bounds the bytes of recent entries that are kept in memory; the last one
	// is kept however large it is. Zero means DefaultCacheSize.
	CacheSize int64

	// FS is the file system. Nil means the operating system's.
	FS vfs.FS
}

// Recovery tells what Open found.
type Recovery struct {
	Entries int64 // that the log holds
	Bytes   int64 // of the segments
	Took    time.Duration
	Changes []uint64 // indexes of entries, of those that it holds, that are no normal ones

	Cut     *Cut // the write that a crash has torn; nil if there is none
	Emptied bool // the log did not hold the snapshot's last entry
}

// Cut is a write that had not been synced and was not whole. Nobody was told of it.
type Cut struct {
	File   string // path
	Offset int64
}

// Log is the entry log of a raft node. Append, Trim, Install, Mark and Close are
// the writer's: one goroutine at a time calls them. All other methods may be called
// from any goroutine at any time, and never wait for a write.
type Log struct {
	fs        vfs.FS
	dir       string
	opts      Options
	lock      io.Closer // of the directory
	seed      uint64
	salt      uint32
	conf      *raftpb.ConfState // as of Options.Snapshot; never changed
	recovered Recovery          // of Open; not changed later

	// The writer's.
	current *segment
	chain   uint32 // sum of the last frame's head
	marked  bool   // the last frame is a mark, or there is none
	draft   draft

	// mu is held for as long as memory takes, never during a call of the file system.
	// What it guards says what is on disk: the writer changes it after the sync. The
	// writer reads it without mu.
	mu         sync.RWMutex
	state      state
	table      table
	cache      cache
	segments   []*segment // by index, contiguous; the last one is current
	end        uint64     // position behind the last frame
	superseded uint64     // how often entries were superseded
	failed     error
	closed     bool

	keeper keeper
}

// Open opens the entry log in a directory that exists, checks every byte of it, and
// makes sure that all that it will say is on disk. Errors wrap a *DamageError, with
// which the node must not go on, ErrNoLog, ErrVersion, ErrLocked, ErrNoSpace, ErrFailed,
// or one of the system. Only the last four are worth another try.
func Open(dir string, opts Options) (*Log, error) {
	opts.FS = cmp.Or[vfs.FS](opts.FS, vfs.OS{})
	opts.CacheSize = cmp.Or(opts.CacheSize, DefaultCacheSize)
	opts.SegmentSize = cmp.Or(opts.SegmentSize, DefaultSegmentSize)
	opts.SegmentSize = (min(max(opts.SegmentSize, MinSegmentSize), MaxSegmentSize) + 4095) &^ 4095
	began := time.Now()
	l := &Log{fs: opts.FS, dir: dir, opts: opts, conf: raftpb.EnsureConfState(opts.Snapshot.GetConfState())}
	l.cache.limit = opts.CacheSize
	lock, err := vfs.LockDir(l.fs, dir)
	if err != nil {
		return nil, err
	}
	l.lock = lock
	if err := l.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("entry log %s: %w", dir, err), l.release())
	}
	l.keeper.start(l)
	if err := l.beginAtSnapshot(); err != nil {
		l.keeper.stop()
		return nil, errors.Join(fmt.Errorf("entry log %s: %w", dir, err), l.release())
	}
	l.recovered.Changes = slices.DeleteFunc(l.recovered.Changes, func(index uint64) bool { return !l.table.has(index) })
	l.recovered.Took = time.Since(began)
	return l, nil
}

// Close writes a mark, unless the log has failed, and releases the directory.
// Readers get errors afterwards.
func (l *Log) Close() error {
	err := l.Mark()
	if errors.Is(err, ErrClosed) {
		return err
	}
	if errors.Is(err, ErrFailed) || errors.Is(err, ErrNoSpace) {
		err = nil // what the mark would have said stays unsaid
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.keeper.stop()
	return errors.Join(err, l.release())
}

// release closes all files and the directory's lock.
func (l *Log) release() (err error) {
	for _, s := range append(l.segments, l.keeper.files()...) {
		if s.file != nil {
			err = errors.Join(err, s.file.Close())
		}
	}
	return errors.Join(err, l.lock.Close())
}

// Recovery tells what Open found.
func (l *Log) Recovery() Recovery { return l.recovered }

// Size is the number of bytes of the log, from the first segment that is needed to its end.
func (l *Log) Size() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return int64(l.end - l.segments[0].pos)
}

// SizeBehind is the number of bytes of the log behind an entry; those of the whole log if
// the entry comes before it.
func (l *Log) SizeBehind(index uint64) int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch {
	case index >= l.state.last.Index:
		return 0
	case !l.table.has(index + 1):
		return int64(l.end - l.segments[0].pos)
	}
	return int64(l.end - l.table.pos[index+1-l.table.low])
}

// fail ends the log for good.
func (l *Log) fail(what string, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = fmt.Errorf("%w: %s: %w", ErrFailed, what, err)
	}
	return l.failed
}

// refuse tells what an error of the file system means for a call that has changed
// nothing yet: that the disk is full, or that the log has failed. A failed sync goes
// to fail at once, whatever its reason.
func (l *Log) refuse(what string, err error) error {
	switch {
	case errors.Is(err, ErrFailed):
		return err
	case vfs.IsNoSpace(err):
		return fmt.Errorf("%w: %s: %w", ErrNoSpace, what, err)
	}
	return l.fail(what, err)
}
