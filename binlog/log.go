package binlog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/vfs"
)

// Log is a directory's log, open for appending. See the package's comment for
// the order of calls. Put, Update, Delete, Move and Flush may be called from any
// goroutine, once Replay has returned.
type Log struct {
	dir  string
	opts Options
	fs   vfs.FS
	log  *slog.Logger
	lock io.Closer
	seed uint32
	boot uint64 // of the machine

	// entries is the directory itself. It stays open, so that a sync of it does not
	// fail for want of a descriptor.
	entries vfs.Dir

	recovery Recovery
	survey   *survey // until Replay
	begun    bool    // the start record of this run is appended

	// mu guards what appends change. It is the innermost lock: holding it,
	// nothing is called that takes time or another lock.
	mu        sync.Mutex
	segs      []*segment // the oldest first; the last one takes the appends
	spares    []*segment // allocated, to follow in this order
	nextIndex uint32     // of the next file; only the keeper changes it
	sealed    []*segment // still open, until they are durable and trimmed
	tail      Pos        // behind everything appended
	batch     batch      // appended and not yet taken by a writer
	idle      [][]byte   // memory for chunks
	room      room
	lastID    uint64
	marked    Pos   // what the last mark says
	closing   bool  // no appends any more
	err       error // why nothing is committed any more
	count     counters
	stalled   bool      // compaction has failed, and waits before it tries again
	unwritten int64     // bytes that were appended and are not written
	spaceFree sync.Cond // the keeper has tried to get space

	// wmu is held by who writes. It is taken before mu.
	wmu    sync.Mutex
	flight flight
	dirty  []*segment // written to since the last sync was begun

	// syncMu is held during a sync. It is taken before wmu.
	syncMu  sync.Mutex
	cleaned []*segment // the last sync's, for its memory

	trimMu sync.Mutex // held by who closes and trims segments. Taken before mu
	gone   []*segment // dropped, with files that are still there. The compactor's

	written  atomic.Uint64 // Pos: handed to the kernel
	synced   atomic.Uint64 // Pos: on disk
	pending  atomic.Bool   // the batch is not empty
	wanted   atomic.Bool   // a Flush met the lock of who writes
	syncing  atomic.Bool   // a sync is under way
	blocked  atomic.Bool   // a write found no space and is to be tried again
	slow     atomic.Bool   // the directory is too large: commits give way to compaction
	failed   atomic.Bool   // err is set
	failOnce sync.Once

	wakeCommitter, wakeSyncer, hurrySyncer, wakeKeeper, wakeTrimmer, wakeCompactor, caughtUp chan struct{}

	stopping, stop     chan struct{} // for the compactor; for the other goroutines
	compactor, workers sync.WaitGroup
}

// Restorer takes what a log holds, in the order of the log. Both methods must be
// done with r and its body when they return.
type Restorer interface {
	// Full tells the whole state of a job as of this place in the log. It
	// replaces all that was told of the id before. The owner keeps segment with
	// the job and returns the one that it kept before, 0 if the id is new.
	Full(r *Record, segment uint32) (replaced uint32, err error)

	// Update tells a later state of a job: all fields but Tube, TTR, Created and
	// Body. An id that the owner does not know is to be ignored.
	Update(r *Record) error
}

// Open locks the directory, which must exist, checks all of its log and gets it
// ready for Replay. A log of beanstalkd's is imported first. Errors that wrap
// ErrLocked, ErrMixed or ErrNoSpace, or are a *DamageError, tell the operator
// what to do.
func Open(dir string, opts Options) (*Log, error) {
	l := newLog(dir, opts)
	lock, err := lockDir(l.fs, dir)
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
	l := &Log{dir: dir, opts: opts, fs: opts.FS, log: opts.Log}
	if l.fs == nil {
		l.fs = vfs.OS{}
	}
	l.boot = l.fs.Boot()
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	o := &l.opts
	if o.SegmentSize == 0 {
		o.SegmentSize = DefaultSegmentSize
	}
	o.SegmentSize = min(max((o.SegmentSize+4095)&^4095, MinSegmentSize), MaxSegmentSize)
	if o.MaxPending == 0 {
		o.MaxPending = DefaultMaxPending
	}
	l.spaceFree.L = &l.mu
	for _, c := range []*chan struct{}{
		&l.wakeCommitter, &l.wakeSyncer, &l.hurrySyncer, &l.wakeKeeper, &l.wakeTrimmer, &l.wakeCompactor, &l.caughtUp,
	} {
		*c = make(chan struct{}, 1)
	}
	l.stop, l.stopping = make(chan struct{}), make(chan struct{})
	return l
}

func lockDir(fs vfs.FS, dir string) (io.Closer, error) {
	lock, err := fs.Lock(filepath.Join(dir, "lock"))
	if locked := (*vfs.LockedError)(nil); errors.As(err, &locked) {
		return nil, fmt.Errorf("log directory %s: %w: %w", dir, ErrLocked, err)
	}
	if err != nil {
		return nil, fmt.Errorf("log directory %s: %w", dir, err)
	}
	return lock, nil
}

// Put appends a new job. It fails with ErrNoSpace, ErrBusy, ErrInvalid,
// ErrFailed or ErrClosed, and then has changed nothing.
func (l *Log) Put(r *Record) (Ticket, error) {
	return l.full(r, 0)
}

// Move appends a job's full record again, so that the one in segment from is no
// longer needed. Only Options.Migrate calls it. It fails as Put does.
func (l *Log) Move(r *Record, from uint32) (Ticket, error) {
	return l.full(r, from)
}

func (l *Log) full(r *Record, from uint32) (Ticket, error) {
	n := journal.Size(r.Tube, len(r.Body))
	if len(r.Tube) == 0 || len(r.Tube) > journal.MaxTube || n > maxWords*8 || !validState(r.State) || r.ID == 0 {
		return Ticket{}, ErrInvalid
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if from == 0 {
		err = l.ready(n, l.room.floor()+deleteRoom, true)
	} else {
		err = l.ready(n, l.room.reserved()+l.room.margin/2, false)
	}
	if err != nil {
		return Ticket{}, err
	}
	b, seg := l.append(n)
	encodeFull(b, seg.start, r)
	seg.jobs++
	seg.live += n
	if from == 0 {
		l.room.jobs++
		l.room.live += n
		l.lastID = max(l.lastID, r.ID)
		l.count.puts++
	} else {
		l.unlink(from, n)
		l.count.moves++
	}
	return Ticket{Pos: l.tail, Segment: seg.index}, nil
}

// Update appends a job's changed state: all fields of r but Tube, TTR, Created
// and Body, which never change. It fails as Put does.
func (l *Log) Update(r *Record) (Pos, error) {
	if !validState(r.State) || r.ID == 0 {
		return 0, ErrInvalid
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(updateSize, l.room.floor(), true); err != nil {
		return 0, err
	}
	b, seg := l.append(updateSize)
	encodeUpdate(b, seg.start, r)
	l.count.updates++
	return l.tail, nil
}

// Delete appends a job's end. Segment is where its full record is, and size that
// record's journal.Size. It fails with ErrFailed and ErrClosed only.
func (l *Log) Delete(id uint64, segment uint32, size int64) (Pos, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(smallSize, 0, true); err != nil {
		return 0, err
	}
	b, seg := l.append(smallSize)
	encodeSmall(b, seg.start, kindDelete, id)
	l.room.jobs--
	l.room.live -= size
	l.unlink(segment, size)
	l.count.deletes++
	return l.tail, nil
}

// unlink takes a job's full record off its segment's account.
func (l *Log) unlink(segment uint32, size int64) {
	i := int(int64(segment) - int64(l.segs[0].index))
	if i < 0 || i >= len(l.segs) {
		panic(fmt.Sprintf("binlog: a job claims to be in segment %d; there are %d to %d", segment, l.segs[0].index, l.current().index))
	}
	s := l.segs[i]
	s.jobs--
	s.live -= size
	if s.jobs < 0 || s.live < 0 {
		panic(fmt.Sprintf("binlog: more jobs leave segment %d than were in it", segment))
	}
	if l.compactable() {
		wake(l.wakeCompactor)
	}
	l.pace()
}

// pace decides whether commits give way to compaction: the directory is nearly
// as large as it may be, or will be with the next segment, and there is something
// to free. With mu held.
func (l *Log) pace() {
	size := l.opts.SegmentSize
	over := l.room.over(size) + size/8
	if over <= 0 && l.room.short() {
		over += size
	}
	if slow := over > 0 && l.freeable(); slow != l.slow.Load() {
		l.slow.Store(slow)
		if slow {
			wake(l.wakeCompactor)
		} else {
			wake(l.caughtUp)
		}
	}
}

// freeable tells whether compaction can free the oldest segment. One that is not
// written cannot go, and who gives way to compaction does not write. With mu
// held.
func (l *Log) freeable() bool {
	seg := l.segs[0]
	return seg.sealed && seg.end() <= Pos(l.written.Load()) && !l.stalled && (seg.jobs == 0 || !seg.stuck && l.opts.Migrate != nil && l.room.full == nil)
}

func (l *Log) current() *segment { return l.segs[len(l.segs)-1] }

// ready waits until n bytes can be appended and keep bytes stay free behind
// them. Without keep the append is one that must not fail. Patient callers wait
// for compaction too, if the directory would become too large: compaction itself
// cannot. With mu held.
func (l *Log) ready(n, keep int64, patient bool) error {
	for {
		switch {
		case l.err != nil:
			return ErrFailed
		case l.closing:
			return ErrClosed
		case keep > 0 && l.blocked.Load():
			return ErrNoSpace
		case keep > 0 && l.unwritten >= l.opts.MaxPending:
			return ErrBusy
		case l.fits(n, keep):
			return nil
		case l.room.full != nil:
			return ErrNoSpace
		}
		// The keeper allocates ahead of need, so this is rare, and short: it
		// waits for one file to be allocated.
		l.room.want(n, keep)
		l.room.hasty = l.room.hasty || !patient
		wake(l.wakeKeeper)
		l.count.waits++
		l.room.waiters++
		l.spaceFree.Wait()
		l.room.waiters--
	}
}

// append returns n bytes at the log's end, to be filled before mu is released,
// and the segment that they are in. There must be room.
func (l *Log) append(n int64) ([]byte, *segment) {
	seg := l.current()
	if seg.used+n > seg.limit() {
		l.rotate()
		seg = l.current()
	}
	l.room.free -= n
	b := l.grow(seg, n)
	l.batch.records++
	if l.room.short() {
		wake(l.wakeKeeper)
		l.pace()
	}
	return b, seg
}

func (l *Log) grow(seg *segment, n int64) []byte {
	b, idle := l.batch.grow(seg, n, l.idle)
	l.idle = idle
	seg.used += n
	l.tail += Pos(n)
	l.room.used += n
	l.unwritten += n
	l.pending.Store(true)
	return b
}

// rotate ends the current segment and goes on in the first spare one.
func (l *Log) rotate() {
	seg := l.current()
	l.room.free -= seg.limit() - seg.used
	encodeSmall(l.grow(seg, smallSize), seg.start, kindEnd, l.lastID)
	seg.sealed = true
	l.sealed = append(l.sealed, seg)

	next := l.spares[0]
	l.spares = l.spares[1:]
	l.begin(next)
	wake(l.wakeCompactor)
	wake(l.wakeKeeper)
}

// begin makes an empty segment the current one.
func (l *Log) begin(seg *segment) {
	oldest := seg.index
	if len(l.segs) > 0 {
		oldest = l.segs[0].index
	}
	seg.header = header{
		seed: l.seed, index: seg.index, oldest: oldest,
		base: l.tail, synced: Pos(l.synced.Load()),
		lastID: l.lastID, created: time.Now().UnixNano(),
		boot: l.boot, interval: int64(l.opts.SyncInterval),
	}
	l.segs = append(l.segs, seg)
	seg.encode(l.grow(seg, headerSize))
}

// NextID is the smallest id that was certainly never used. Valid after Replay.
func (l *Log) NextID() uint64 { return l.recovery.NextID }

// Recovery tells what Open and Replay found.
func (l *Log) Recovery() Recovery { return l.recovery }

// Committed is the place up to which everything is committed. It may be called
// from any goroutine.
func (l *Log) Committed() Pos {
	if l.opts.SyncInterval == 0 {
		return Pos(l.synced.Load())
	}
	return Pos(l.written.Load())
}

// durablePos is the place up to which everything is as safe as it will get.
func (l *Log) durablePos() Pos {
	if l.opts.SyncInterval < 0 {
		return Pos(l.written.Load())
	}
	return Pos(l.synced.Load())
}

// fail ends the log's life as a log.
func (l *Log) fail(err error) {
	l.failOnce.Do(func() {
		l.mu.Lock()
		l.err = err
		l.failed.Store(true)
		l.spaceFree.Broadcast()
		l.mu.Unlock()
		l.log.Error("the log has failed: nothing is acknowledged any more", "error", err)
		if l.opts.OnFail != nil {
			l.opts.OnFail(err)
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
	l.spaceFree.Broadcast()
	l.mu.Unlock()
	close(l.stopping)
	l.compactor.Wait()
	close(l.stop)
	l.workers.Wait()

	var err error
	if l.begun {
		err = l.finish()
	}
	for _, s := range l.segs {
		if s.file != nil {
			err = errors.Join(err, s.file.Close())
		}
	}
	for _, s := range l.spares {
		err = errors.Join(err, s.file.Close())
	}
	return errors.Join(err, l.entries.Close(), l.lock.Close())
}

// finish writes what is left, and that it is the end.
func (l *Log) finish() error {
	if l.settle() {
		l.mu.Lock()
		if l.fits(smallSize, l.room.reserved()) {
			b, seg := l.append(smallSize)
			l.marked = Pos(l.synced.Load())
			encodeSmall(b, seg.start, kindStop, uint64(l.marked))
		}
		l.mu.Unlock()
		if l.settle() {
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

const farAway = time.Duration(math.MaxInt64)
