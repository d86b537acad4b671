package binlog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"trellis/binlog/convert"
	"trellis/binlog/inspect"
	"trellis/binlog/internal/index"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// Recovery tells what Open and Replay found in a directory.
type Recovery struct {
	Segments int
	Records  int64 // in the segments
	Jobs     int64 // that are alive, and tombstones
	Bytes    int64 // of the segments
	Clean    bool  // the last server ended in good order, or there was none
	NextID   uint64

	Cut      *Cut              // the torn end of the log that was cut off
	Imported *convert.Imported // what came over from beanstalkd's log
	Salvaged *convert.Salvaged // what came over from a damaged log
}

// idGap is how many ids are left out when the records of the last ones may be
// lost: a million for each second between two syncs, of which one may take
// seconds itself.
func idGap(p SyncPolicy) uint64 { return uint64(10+p.Interval()/time.Second) << 20 }

// recover gets the directory into a state from which Replay can read and go on.
func (l *Log) recover() error {
	s, err := l.survey()
	if err == nil {
		err = l.repair(s)
	}
	if err != nil {
		return fmt.Errorf("log directory %s: %w", l.dir, spaceError(err))
	}
	l.seed = cmp.Or(s.Seed, rand.Uint32()|1)
	l.atOpen = s
	r := &l.recovery
	r.Segments, r.Records, r.Clean = len(s.Segments), s.Records, s.Clean || len(s.Segments) == 0
	for _, seg := range s.Segments {
		r.Bytes += seg.Used
	}
	r.NextID = s.LastID + 1
	if !r.Clean && s.Run.Sync != SyncAlways && (l.boot == 0 || l.boot != s.Run.Boot) {
		// The machine was restarted: ids that were told to clients may be lost.
		r.NextID += idGap(s.Run.Sync)
	}
	return nil
}

// survey finds out what the directory holds, after it has imported beanstalkd's log
// or salvaged a damaged one.
func (l *Log) survey() (*inspect.Survey, error) {
	t := convert.Takeover{
		FS: l.fs, Dir: l.dir, SegmentSize: l.opts.SegmentSize,
		SkipDamaged: l.opts.SkipDamaged, Progress: l.opts.Progress,
	}
	imported, err := t.Import()
	if err != nil {
		return nil, err
	}
	if i := imported; i != nil {
		l.recovery.Imported = i
		for _, n := range i.Notes {
			l.log.Warn("import of beanstalkd's log: " + n)
		}
		l.log.Info("beanstalkd's log was imported",
			"files", i.Files, "kept-in", i.Aside, "tubes", i.Tubes, "ready", i.Ready,
			"delayed", i.Delayed, "buried", i.Buried, "body-bytes", i.Bytes, "last-id", i.LastID)
	}
	s, err := l.inspect()
	if damage := (*DamageError)(nil); !errors.As(err, &damage) || !l.opts.SkipDamaged || s == nil {
		return s, err
	}
	l.log.Warn("the log is damaged: taking over what is sound", "error", err)
	salvaged, err := t.Salvage(s, idGap(s.Run.Sync))
	if err != nil {
		return nil, fmt.Errorf("salvage: %w", err)
	}
	l.recovery.Salvaged = salvaged
	l.log.Warn("a damaged log was salvaged", slog.Group("log",
		"jobs", salvaged.Jobs, "lost-for-certain", salvaged.Lost, "skipped-bytes", salvaged.Skipped,
		"old-files-in", salvaged.Aside))
	return l.inspect()
}

// inspect surveys the directory, by indexes if there may be some.
func (l *Log) inspect() (*inspect.Survey, error) {
	if l.index == nil {
		return inspect.Directory(l.fs, l.dir, l.opts.Progress)
	}
	return inspect.Indexed(l.fs, l.dir, l.boot, l.opts.Progress)
}

// repair makes the files agree with the survey. Each step leaves a directory in which
// a further survey comes to the same result.
func (l *Log) repair(s *inspect.Survey) error {
	if err := l.removeStale(s); err != nil {
		return err
	}
	for _, f := range s.Stale {
		if err := l.fs.Remove(f.Name); err != nil {
			return err
		}
	}
	if c := s.Cut; c != nil {
		l.recovery.Cut = c
		l.log.Warn("the end of the log is torn and was cut off",
			"file", c.File, "offset", c.Offset, "found", c.What, "sound-records-behind", c.Sound)
		keep := s.Segments[len(s.Segments)-1].Index
		for _, f := range slices.Backward(s.Files) {
			if f.Index <= keep {
				break
			}
			if err := l.fs.Remove(f.Name); err != nil {
				return err
			}
		}
		if c.Index == keep {
			if err := l.blank(c); err != nil {
				return err
			}
		}
	}
	// The numbers of the spares have to follow that of the last segment.
	next := uint32(1)
	if n := len(s.Segments); n > 0 {
		next = s.Segments[n-1].Index + 1
	}
	for i := range s.Spare {
		f := &s.Spare[i]
		if f.Index != next {
			name := l.path(next)
			if err := l.fs.Rename(f.Name, name); err != nil {
				return err
			}
			f.Name, f.Index = name, next
		}
		next++
	}
	return nil
}

// blank overwrites the torn end of a segment with zeros: it must not be read
// again when records are written up to it.
func (l *Log) blank(c *Cut) (err error) {
	f, err := l.fs.Open(c.File)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := vfs.WriteZeros(f, c.Offset, c.Size-c.Offset); err != nil || l.opts.Sync == SyncNever {
		return err
	}
	return f.Sync()
}

// Replay tells the owner every job that is alive. It must be called once, before
// Start.
func (l *Log) Replay(to Restorer) error {
	if err := l.replay(to); err != nil {
		return fmt.Errorf("log directory %s: replay: %w", l.dir, err)
	}
	l.recovery.Jobs = l.room.jobs
	return nil
}

// Start begins a run: the log takes appends, commits them, and calls the hooks. It
// must be called once, after Replay.
func (l *Log) Start(hooks Hooks) error {
	l.hooks = hooks
	if err := l.waker.open(); err != nil {
		return fmt.Errorf("log directory %s: wake the committer: %w", l.dir, err)
	}
	if err := l.begins(); err != nil {
		return fmt.Errorf("log directory %s: %w", l.dir, spaceError(err))
	}
	l.atOpen = nil
	if hooks.Fetched != nil {
		l.startBodies()
	}
	l.workers.Go(l.runCommitter)
	l.workers.Go(l.runKeeper)
	l.workers.Go(l.runTrimmer)
	if l.index != nil {
		l.workers.Go(l.runIndexer)
	}
	if l.opts.Sync.Interval() > 0 {
		l.workers.Go(l.runSyncer)
	}
	l.compactor.Go(l.runCompactor)
	wake(l.wakeKeeper)
	wake(l.wakeCompactor)
	return nil
}

// replay tells the owner the jobs and counts them, segment by segment.
func (l *Log) replay(to Restorer) error {
	r := &replay{Log: l, to: to, meter: inspect.NewMeter("replay", l.recovery.Bytes, l.opts.Progress)}
	for _, f := range l.atOpen.Segments {
		l.segs = append(l.segs,
			&segment{Header: f.Header, salt: f.Salt(), name: f.Name, size: f.Size, used: f.Used, sealed: f.Sealed})
	}
	for i, seg := range l.segs {
		if x := l.atOpen.Segments[i].Contents; x != nil {
			l.indexGrown(seg, x.Size)
			err := r.indexed(seg, x)
			if err == nil {
				r.meter.Add(seg.used)
				continue
			}
			if !errors.Is(err, index.ErrBad) {
				return err
			}
			l.log.Warn("an index is damaged: its segment is read", "file", seg.name, "error", err)
			l.index.do(indexTask{seg: seg, none: true})
		}
		if err := r.segment(seg); err != nil {
			return err
		}
	}
	r.meter.End()
	return nil
}

// replay is the state of Log.replay.
type replay struct {
	*Log
	to    Restorer
	meter *inspect.Meter
	sc    record.Scanner
	names record.Names
	rec   Record

	absent journal.Fetch // what rec.Absent points to
}

func (r *replay) segment(seg *segment) error {
	if r.index != nil {
		r.index.begin(seg)
	}
	end := int64(record.HeaderSize)
	damage := func(err error) error {
		return &DamageError{File: seg.name, Offset: end, What: err.Error() + "; it was sound a moment ago"}
	}
	for b, gap := range r.sc.File(r.fs, seg.name, &seg.Header, seg.used) {
		if gap != nil {
			return damage(gap.Err)
		}
		at := end
		end = r.sc.Offset()
		r.meter.Add(int64(len(b)))
		if err := r.record(seg, at, b); err != nil {
			return err
		}
		if r.index != nil && r.index.written(seg, at, b) {
			r.index.work()
		}
	}
	if err := r.sc.Err(); err != nil || end == seg.used {
		return err
	}
	return damage(record.ErrUnwritten)
}

// record tells what a record says that is at that offset of a segment.
func (r *replay) record(seg *segment, at int64, b []byte) error {
	switch k := record.KindOf(b); {
	case k == record.Setting || k == record.Policy:
		s := record.DecodeSetting(b)
		r.keep(seg, &s)
		return r.to.Setting(&s)
	case k != record.Full && k != record.Update && k != record.Hold, r.atOpen.Deleted.Has(record.Number(b)):
		return nil
	case k == record.Update:
		record.DecodeUpdate(b, &r.rec)
		return r.to.Update(&r.rec)
	case k == record.Hold:
		h := record.DecodeHold(b)
		return r.to.Hold(&h)
	}
	if size := record.DecodeHead(b, &r.rec, &r.names); size > 0 && int64(len(b)) < record.Length(b) {
		r.absent = journal.Fetch{ID: r.rec.ID, Place: seg.place(at), Size: size}
		r.rec.Absent = &r.absent
	} else {
		r.rec.Absent, r.rec.Body = nil, record.Body(b)
	}
	was, err := r.to.Full(&r.rec, seg.place(at))
	if err != nil {
		return err
	}
	r.link(seg, record.Length(b), was)
	r.room.tombstones += tombstoneRoom(&r.rec) - was.Tombstone
	if was.Segment == 0 {
		r.room.jobs++
	}
	return nil
}

// begins gets the log ready for appends and records that a new run begins.
func (l *Log) begins() error {
	s := l.atOpen
	l.lastID = l.recovery.NextID - 1
	l.lastMark = s.Synced
	l.nextIndex = 1
	for _, seg := range l.segs {
		l.nextIndex = seg.Index + 1
		l.tail = seg.end()
		l.room.used += seg.used
		l.room.disk += seg.size
		if err := l.makeOldDurable(seg); err != nil {
			return err
		}
		if l.index != nil && seg.sealed {
			l.index.do(indexTask{seg: seg, durable: true})
		}
	}
	if err := l.adopt(s.Spare); err != nil {
		return err
	}
	if l.opts.Sync != SyncNever {
		// The run that made these files may have been killed before it did this.
		if err := l.entries.Sync(); err != nil {
			return err
		}
		for _, seg := range slices.Concat(l.segs, l.spares) {
			seg.nameDurable.Store(true)
		}
	}
	if n := len(l.segs); n == 0 || l.current().sealed {
		if err := l.beginFirst(); err != nil {
			return err
		}
	} else {
		seg := l.current()
		if seg.limit() < seg.used { // somebody has cut the file
			size := (seg.used + record.SmallSize + 4095) &^ 4095
			if err := seg.file.Allocate(size); err != nil {
				return err
			}
			l.room.disk += size - seg.size
			seg.size = size
		}
		l.room.free += seg.limit() - seg.used
	}
	l.written.Store(uint64(l.tail) - uint64(l.unwritten))
	if l.opts.Sync != SyncNever {
		l.synced.Store(l.written.Load())
	}
	l.mu.Lock()
	for !l.fits(record.StartSize, l.room.floor()) {
		err := l.allocate(record.StartSize)
		if vfs.IsNoSpace(err) && l.fits(record.StartSize, l.room.reserved()) {
			break // jobs can end, which gives space back
		}
		if err != nil {
			l.mu.Unlock()
			return fmt.Errorf("reserve %d bytes so that every job's delete can be recorded: %w", l.room.reserved(), err)
		}
	}
	r := record.Run{
		At: time.Now().UnixNano(), Boot: l.boot, NextID: l.recovery.NextID,
		Synced: Pos(l.synced.Load()), Sync: l.opts.Sync,
	}
	b, seg := l.append(record.StartSize)
	r.Encode(b, seg.salt)
	l.hasStartRecord = true
	l.mu.Unlock()
	if !l.makeDurable() {
		return errors.Join(errors.New("the log cannot be written"), l.err)
	}
	return nil
}

// makeOldDurable makes durable what an earlier run has written to a segment, and opens
// the segment if it takes appends.
func (l *Log) makeOldDurable(seg *segment) error {
	if seg.sealed && seg.size == seg.used && seg.end() <= l.atOpen.Synced {
		return nil
	}
	file, err := l.fs.Open(seg.name)
	if err != nil {
		return err
	}
	if l.opts.Sync != SyncNever {
		err = errors.Join(l.rewrite(file, seg), file.Sync())
	}
	if !seg.sealed {
		seg.file = file
		return err
	}
	if err == nil && seg.size > seg.used {
		if e := file.Truncate(seg.used); e == nil {
			l.room.disk -= seg.size - seg.used
			seg.size = seg.used
		}
	}
	return errors.Join(err, file.Close())
}

// rewrite writes again what an earlier run may have failed to sync. The system may
// believe that it is on disk, and would not write it at the next sync.
func (l *Log) rewrite(file vfs.File, seg *segment) error {
	if l.atOpen.Run.Sync == SyncNever || seg.end() <= l.atOpen.Synced {
		return nil
	}
	off := int64(0)
	if l.atOpen.Synced > seg.Base {
		off = int64(l.atOpen.Synced - seg.Base)
	}
	n := seg.used - off
	_, err := io.CopyN(io.NewOffsetWriter(file, off), io.NewSectionReader(file, off, n), n)
	return err
}

// adopt takes over the spare segments of an earlier run. The first one that is of no use,
// and all behind it, are removed: their numbers must follow each other.
func (l *Log) adopt(spare []inspect.File) error {
	for i, f := range spare {
		file, err := l.fs.Open(f.Name)
		if err != nil {
			return err
		}
		size := f.Size
		if err := file.Allocate(l.opts.SegmentSize); err == nil {
			size = max(size, l.opts.SegmentSize)
		} else if !vfs.IsNoSpace(err) || size < MinSegmentSize {
			err := file.Close()
			for _, f := range spare[i:] {
				err = errors.Join(err, l.fs.Remove(f.Name))
			}
			return err
		}
		l.mu.Lock()
		l.addSpare(&segment{Header: record.Header{Index: f.Index}, name: f.Name, size: size, file: file})
		l.mu.Unlock()
		l.nextIndex = f.Index + 1
	}
	return nil
}

// beginFirst begins a segment where there is none to go on in.
func (l *Log) beginFirst() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.spares) == 0 {
		if err := l.allocate(0); err != nil {
			return fmt.Errorf("first segment: %w", err)
		}
	}
	seg := l.spares[0]
	l.spares = l.spares[1:]
	l.begin(seg)
	l.room.free -= capacity(seg.size)
	l.room.free += seg.limit() - seg.used
	return nil
}
