package binlog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"trellis/binlog/inspect"
	"trellis/binlog/internal/bodies"
	"trellis/binlog/internal/index"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// Log is a directory's log, open for appending. See the package's comment for
// the order of calls. Put, Update, Replace, Delete, Set, Move and Flush may be called from any
// goroutine, once Start has returned.
type Log struct {
	dir   string
	opts  Options
	hooks Hooks // set by Start
	fs    vfs.FS
	log   *slog.Logger
	lock  io.Closer
	seed  uint32
	boot  uint64 // number of the machine's start; 0 if unknown

	// entries is the directory itself. It stays open, so that a sync of it does not
	// fail for want of a descriptor.
	entries vfs.Dir
	index   *indexer // nil if there are no indexes

	recovery Recovery
	atOpen   *inspect.Survey // what Open has found; nil once Start has returned

	// mu guards what appends change. It is the innermost lock: while it is held,
	// no other lock is taken and nothing is called that takes time.
	mu             sync.Mutex
	segs           []*segment // the oldest first; the last one takes the appends
	spares         []*segment // allocated, to follow in this order
	nextIndex      uint32     // of the next file; only the keeper changes it
	sealed         []*segment // full, and open until they are durable and trimmed
	tail           Pos        // the end of what was appended
	batch          batch      // appended and not yet taken for writing
	idle           [][]byte   // buffers for chunks
	room           room
	lastID         uint64
	settings       map[string]setting // the latest, by tube
	lastMark       Pos                // the position in the last mark record
	hasStartRecord bool               // the start record of this run is appended
	closing        bool               // Close was called: appends are refused
	err            error              // why the log has failed; nil if it has not
	count          Stats              // of which only the counters are kept up
	stalled        bool               // compaction has failed, and waits before it tries again
	unwritten      int64              // bytes that were appended and are not written

	// wmu is held while a batch is taken and written. It is taken before mu, and
	// guards what follows.
	wmu    sync.Mutex
	flight flight
	dirty  []*segment // written to since the last sync was begun

	// syncMu is held during a sync, and guards cleaned. It is taken before wmu.
	syncMu  sync.Mutex
	cleaned []*segment // what dirty was before the last sync, kept for its memory

	trimMu  sync.Mutex // held while full segments are trimmed and closed; taken before mu
	dropped []*segment // segments that are not needed and whose files are still there; the compactor's own

	written     atomic.Uint64 // Pos: handed to the kernel
	synced      atomic.Uint64 // Pos: on disk
	pending     atomic.Int64  // bytes in the batch
	flushWanted atomic.Bool   // a Flush did not get wmu, and relies on its holder
	syncing     atomic.Bool   // a sync is under way
	blocked     atomic.Bool   // a write found no space and is to be tried again
	slow        atomic.Bool   // the directory is too large: commits wait for compaction
	failed      atomic.Bool   // err is set
	failOnce    sync.Once

	waker  waker           // of the committer
	bodies *bodies.Reader  // nil unless Hooks.Fetched is set; Start sets it
	early  []journal.Fetch // asked for before Start; mu guards it

	wakeSyncer, hurrySyncer, wakeKeeper, wakeTrimmer, wakeCompactor, caughtUp, roomTold chan struct{} // of capacity 1

	stopping, stop     chan struct{} // closed to end the compactor, and then the other goroutines
	compactor, workers sync.WaitGroup
}

// segment is one file of the log. The log's mu guards the fields that change,
// except file.
type segment struct {
	record.Header
	salt record.Salt
	name string // path
	size int64  // of the file, allocated

	used      int64 // bytes that were appended, from the file's start on
	sealed    bool  // its end record is appended: nothing follows
	liveCount int64 // jobs that have their latest full record here, and latest settings
	live      int64 // bytes of those records
	stuck     bool  // damaged, so that compaction cannot empty it
	indexed   int64 // bytes of its index on disk; only the indexer changes it
	dropped   bool  // it is not in segs any more

	// nameDurable says that the file's name is durable. A sync of a segment includes
	// that of its name.
	nameDurable atomic.Bool

	// file is open from the segment's creation, or Start, until the segment is
	// sealed and durable. Until then writes and syncs use it; then it is trimmed
	// and closed under trimMu, and nil.
	file vfs.File
}

// limit is where records must end: the rest is for the end record.
func (s *segment) limit() int64 { return s.size&^7 - record.SmallSize }

// capacity is what an empty segment of that size holds in records.
func capacity(size int64) int64 { return size&^7 - record.HeaderSize - record.SmallSize }

// place is that of a record which begins at that offset.
func (s *segment) place(off int64) journal.Place {
	return journal.Place{Segment: s.Index, Offset: uint32(off / 8)}
}

// end is the position behind what was appended.
func (s *segment) end() Pos { return s.Base + Pos(s.used) }

// Restorer takes what a log holds, in the order of the log. No method keeps its argument or
// the body in it after it has returned.
type Restorer interface {
	// Full tells the whole state of a job, or a tombstone, as of this position. With Options.Indexes
	// the body may be elsewhere, at place: r.Absent asks for it.
	// It replaces all that was told of the id before. The owner keeps place with the
	// job and returns what it kept before, the zero Former if the id is new.
	Full(r *Record, place journal.Place) (replaced journal.Former, err error)

	// Update tells a later state of a job: all fields but Tube, TTR, Created, Body and
	// Keys. An id that the owner does not know is to be ignored.
	Update(r *Record) error

	// Setting tells a tube's setting as of this position, or its end.
	Setting(s *Setting) error

	// Hold tells that a job was reserved, and that this was on record: the log is a copy of a
	// cluster's snapshot. The job is ready, wherever it stood. An id that is not known is to be
	// ignored.
	Hold(h *journal.Hold) error
}

// Open locks the directory, which must exist, checks all of its log and gets it
// ready for Replay. A log of beanstalkd's is imported first. Errors that wrap
// ErrLocked, ErrMixed, ErrCluster or ErrNoSpace, or are a *DamageError, tell the
// operator what to do.
func Open(dir string, opts Options) (*Log, error) {
	l := newLog(dir, opts)
	if err := refuseCluster(l.fs, dir); err != nil {
		return nil, err
	}
	lock, err := vfs.LockDir(l.fs, dir)
	if err != nil {
		return nil, err
	}
	l.lock = lock
	l.entries, err = l.fs.OpenDir(dir)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := l.recover(); err != nil {
		return nil, errors.Join(err, l.entries.Close(), lock.Close())
	}
	return l, nil
}

func newLog(dir string, opts Options) *Log {
	l := &Log{
		dir: dir, opts: opts, fs: cmp.Or[vfs.FS](opts.FS, vfs.OS{}), log: cmp.Or(opts.Log, slog.New(slog.DiscardHandler)),
		settings: map[string]setting{},
	}
	l.boot = l.fs.Boot()
	l.batch.encoders, l.flight.encoders = new(sync.WaitGroup), new(sync.WaitGroup)
	if opts.Indexes {
		l.index = newIndexer(l)
	}
	if l.index != nil {
		l.room.indexJob = index.JobSize
	}
	size := cmp.Or(opts.SegmentSize, DefaultSegmentSize)
	size = min(max((size+4095)&^4095, MinSegmentSize), MaxSegmentSize)
	l.opts.SegmentSize = size
	l.opts.MaxPending = cmp.Or(opts.MaxPending, MaxPending)
	l.room.margin, l.room.ahead = size/8, size/4
	for _, c := range []*chan struct{}{
		&l.wakeSyncer, &l.hurrySyncer, &l.wakeKeeper, &l.wakeTrimmer, &l.wakeCompactor, &l.caughtUp, &l.roomTold,
	} {
		*c = make(chan struct{}, 1)
	}
	l.stop, l.stopping = make(chan struct{}), make(chan struct{})
	return l
}

// NextID is the smallest id that was certainly never used. Valid after Replay.
func (l *Log) NextID() uint64 { return l.recovery.NextID }

// Recovery tells what Open and Replay found.
func (l *Log) Recovery() Recovery { return l.recovery }

// Committed is the position up to which everything is committed. It may be called
// from any goroutine.
func (l *Log) Committed() Pos {
	if l.opts.Sync == SyncAlways {
		return Pos(l.synced.Load())
	}
	return Pos(l.written.Load())
}

// Durable is the position before which everything is as safe as it becomes: synced, or written if the log
// never syncs. It does not move any more once the log has failed. Any goroutine may call it.
func (l *Log) Durable() Pos {
	if l.opts.Sync == SyncNever {
		return Pos(l.written.Load())
	}
	return Pos(l.synced.Load())
}

// fail ends all appends and commits for good.
func (l *Log) fail(err error) {
	l.failOnce.Do(func() {
		l.mu.Lock()
		l.err = err
		l.failed.Store(true)
		l.mu.Unlock()
		wake(l.wakeKeeper)
		if l.bodies != nil {
			l.bodies.Fail(ErrFailed)
		}
		l.log.Error("the log has failed: nothing is acknowledged any more", "error", err)
		if l.hooks.OnFail != nil {
			l.hooks.OnFail(err)
		}
	})
}

// Close commits and syncs what was appended, ends the log as a clean one and
// unlocks the directory. It returns the error of a Log that failed. No other
// method may be running.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		return nil
	}
	l.closing = true
	l.mu.Unlock()
	wake(l.wakeKeeper)
	close(l.stopping)
	l.compactor.Wait()
	close(l.stop)
	l.waker.wake()
	l.workers.Wait()
	if l.bodies != nil {
		l.bodies.Close(ErrClosed)
	}

	var err error
	if l.hasStartRecord {
		err = l.finish()
	}
	if l.index != nil {
		l.trim()
		l.index.close()
	}
	for _, s := range l.segs {
		if s.file != nil {
			err = errors.Join(err, s.file.Close())
		}
	}
	for _, s := range l.spares {
		err = errors.Join(err, s.file.Close())
	}
	l.waker.close()
	return errors.Join(err, l.entries.Close(), l.lock.Close())
}

// finish writes what is pending, and a stop record.
func (l *Log) finish() error {
	if l.makeDurable() {
		l.mu.Lock()
		if l.fits(record.SmallSize, l.room.reserved()) {
			b, seg := l.append(record.SmallSize)
			l.lastMark = Pos(l.synced.Load())
			record.EncodeSmall(b, seg.salt, record.Stop, uint64(l.lastMark))
		}
		l.mu.Unlock()
		if l.makeDurable() {
			return nil
		}
	}
	if l.failed.Load() {
		return fmt.Errorf("%w: %w", ErrFailed, l.err)
	}
	return fmt.Errorf("what was appended last could not be written: %w", ErrNoSpace)
}

// wake makes the goroutine that waits on c look for work.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// farAway is the time to which a timer is set that is not to fire.
const farAway = time.Duration(math.MaxInt64)
