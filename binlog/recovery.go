package binlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"trellis/binlog/vfs"
)

// Recovery tells what Open and Replay found in a directory.
type Recovery struct {
	Segments int
	Records  int64 // in the segments
	Jobs     int64 // that are alive
	Bytes    int64 // of the segments
	Clean    bool  // the last server ended in good order, or there was none
	NextID   uint64
	Took     time.Duration

	Cut      *Cut    // the torn end of the log that was cut off
	Imported *Import // what came over from beanstalkd's log
	Salvaged *Salvage
}

// Cut tells of a torn end: what a crash left of writes that were not synced yet.
type Cut struct {
	File   string
	Offset int64
	What   string // what was there instead of a record
	Sound  int64  // records behind it that could be read, and are gone
}

// idGap is how many ids are left out when the records of the last ones may be
// lost: a million for each second between two syncs, of which one may take
// seconds itself.
func idGap(syncInterval int64) uint64 {
	return uint64(10+max(syncInterval, 0)/int64(time.Second)) << 20
}

// recover gets the directory into a state from which Replay can read and go on.
func (l *Log) recover() error {
	began := time.Now()
	if err := l.takeOver(); err != nil {
		return fmt.Errorf("log directory %s: %w", l.dir, err)
	}
	s, err := inspect(l.fs, l.dir, l.opts.Progress)
	if damage := (*DamageError)(nil); errors.As(err, &damage) && l.opts.SkipDamaged && s != nil {
		l.log.Warn("the log is damaged: taking over what is sound", "error", err)
		if err := l.salvage(s); err != nil {
			return fmt.Errorf("log directory %s: salvage: %w", l.dir, err)
		}
		s, err = inspect(l.fs, l.dir, l.opts.Progress)
	}
	if err != nil {
		return fmt.Errorf("log directory %s: %w", l.dir, err)
	}
	if err := l.repair(s); err != nil {
		return fmt.Errorf("log directory %s: %w", l.dir, err)
	}
	l.seed = s.seed
	if l.seed == 0 {
		l.seed = rand.Uint32() | 1
	}
	l.survey = s
	r := &l.recovery
	r.Segments, r.Records, r.Clean = len(s.segs), s.records, s.clean || len(s.segs) == 0
	for _, seg := range s.segs {
		r.Bytes += seg.used
	}
	r.NextID = s.lastID + 1
	if !r.Clean && s.run.interval != 0 && (l.boot == 0 || l.boot != s.run.boot) {
		// The machine was restarted: ids that were told to clients may be lost.
		r.NextID += idGap(s.run.interval)
	}
	r.Took = time.Since(began)
	return nil
}

// repair changes the files to what the survey made of them. Each step leaves a
// directory in which a further survey comes to the same result.
func (l *Log) repair(s *survey) error {
	for _, f := range s.stale {
		if err := l.fs.Remove(f.name); err != nil {
			return err
		}
	}
	if c := s.cut; c != nil {
		l.recovery.Cut = &Cut{File: c.file.name, Offset: c.offset, What: c.what, Sound: c.sound}
		l.log.Warn("the end of the log is torn and was cut off",
			"file", c.file.name, "offset", c.offset, "found", c.what, "sound-records-behind", c.sound)
		keep := s.segs[len(s.segs)-1].index
		for _, f := range slices.Backward(s.files) {
			if f.index <= keep {
				break
			}
			if err := l.fs.Remove(f.name); err != nil {
				return err
			}
		}
		if c.file.index == keep {
			if err := l.blank(c); err != nil {
				return err
			}
		}
	}
	// What is left of the spares follows the last segment.
	next := uint32(1)
	if n := len(s.segs); n > 0 {
		next = s.segs[n-1].index + 1
	}
	for i := range s.spare {
		f := &s.spare[i]
		if f.index != next {
			name := filepath.Join(l.dir, segmentName(next))
			if err := l.fs.Rename(f.name, name); err != nil {
				return err
			}
			f.name, f.index = name, next
		}
		next++
	}
	return nil
}

// blank overwrites the torn end of a segment with zeros: it must not be read
// again when records are written up to it.
func (l *Log) blank(c *cut) (err error) {
	f, err := l.fs.Open(c.file.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zeros := make([]byte, min(1<<20, c.file.size-c.offset))
	for off := c.offset; off < c.file.size; off += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), c.file.size-off)], off); err != nil {
			return err
		}
	}
	if l.opts.SyncInterval < 0 {
		return nil
	}
	return f.Sync()
}

// Replay tells the owner every job that is alive, and then opens the log for
// appends. It must be called once, before anything else.
func (l *Log) Replay(to Restorer) error {
	began := time.Now()
	if err := l.replay(to); err != nil {
		return fmt.Errorf("log directory %s: replay: %w", l.dir, err)
	}
	if err := l.begins(); err != nil {
		return fmt.Errorf("log directory %s: %w", l.dir, err)
	}
	l.recovery.Jobs = l.room.jobs
	l.recovery.Took += time.Since(began)
	l.survey = nil
	l.workers.Add(1)
	go l.runCommitter()
	l.workers.Add(1)
	go l.runKeeper()
	l.workers.Add(1)
	go l.runTrimmer()
	if l.opts.SyncInterval > 0 {
		l.workers.Add(1)
		go l.runSyncer()
	}
	l.compactor.Add(1)
	go l.runCompactor()
	wake(l.wakeKeeper)
	wake(l.wakeCompactor)
	return nil
}

func (l *Log) replay(to Restorer) error {
	s := l.survey
	m := &meter{Progress: Progress{Phase: "replay", Total: l.recovery.Bytes}, call: l.opts.Progress}
	var (
		sc    scanner
		tubes names
		rec   Record
	)
	for _, seg := range s.segs {
		file, err := l.fs.OpenRead(seg.name)
		if err != nil {
			return err
		}
		sc.reset(file, &seg.header, seg.used)
		for err == nil {
			at := sc.off
			var b []byte
			b, err = sc.next()
			if err != nil {
				if errors.Is(err, errUnwritten) && at == seg.used {
					err = nil
				} else {
					err = &DamageError{File: seg.name, Offset: at, What: err.Error() + "; it was sound a moment ago"}
				}
				break
			}
			m.add(sc.off - at)
			switch kindOf(b) {
			case kindFull:
				if s.deleted.has(valueOf(b)) {
					continue
				}
				decodeFull(b, &rec, &tubes)
				var was uint32
				if was, err = to.Full(&rec, seg.index); err != nil {
					break
				}
				n := int64(len(b))
				seg.jobs++
				seg.live += n
				l.room.jobs++
				l.room.live += n
				if was != 0 {
					old := s.segs[was-s.segs[0].index]
					old.jobs--
					old.live -= n
					l.room.jobs--
					l.room.live -= n
				}
			case kindUpdate:
				if s.deleted.has(valueOf(b)) {
					continue
				}
				decodeUpdate(b, &rec)
				err = to.Update(&rec)
			}
		}
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	m.tell(true)
	return nil
}

// begins gets the log ready for appends and records that a new run begins.
func (l *Log) begins() error {
	s := l.survey
	l.room.init(l.opts.SegmentSize)
	l.lastID = l.recovery.NextID - 1
	l.marked = s.synced
	l.nextIndex = 1
	for _, seg := range s.segs {
		l.segs = append(l.segs, seg)
		l.nextIndex = seg.index + 1
		l.tail = seg.end()
		l.room.used += seg.used
		l.room.disk += seg.size
		if err := l.settleOld(seg); err != nil {
			return err
		}
	}
	if err := l.adopt(s.spare); err != nil {
		return err
	}
	if l.opts.SyncInterval >= 0 {
		// The run that made these files may have been killed before it did this.
		if err := l.entries.Sync(); err != nil {
			return err
		}
		for _, seg := range slices.Concat(l.segs, l.spares) {
			seg.named.Store(true)
		}
	}
	if n := len(l.segs); n == 0 || l.current().sealed {
		if err := l.beginFirst(); err != nil {
			return err
		}
	} else {
		seg := l.current()
		if seg.limit() < seg.used { // somebody has cut the file
			size := (seg.used + smallSize + 4095) &^ 4095
			if err := seg.file.Allocate(size); err != nil {
				return err
			}
			l.room.disk += size - seg.size
			seg.size = size
		}
		l.room.free += seg.limit() - seg.used
	}
	l.written.Store(uint64(l.tail) - uint64(l.unwritten))
	if l.opts.SyncInterval >= 0 {
		l.synced.Store(l.written.Load())
	}
	l.mu.Lock()
	for !l.fits(startSize, l.room.floor()) {
		err := l.allocate(startSize)
		if vfs.IsNoSpace(err) && l.fits(startSize, l.room.reserved()) {
			break // jobs can end, which gives space back
		}
		if err != nil {
			l.mu.Unlock()
			return fmt.Errorf("reserve %d bytes so that every job's delete can be recorded: %w", l.room.reserved(), spaceError(err))
		}
	}
	r := startRecord{
		at: time.Now().UnixNano(), boot: l.boot, nextID: l.recovery.NextID,
		synced: Pos(l.synced.Load()), interval: int64(l.opts.SyncInterval),
	}
	b, seg := l.append(startSize)
	r.encode(b, seg.start)
	l.begun = true
	l.mu.Unlock()
	if !l.settle() {
		return errors.Join(errors.New("the log cannot be written"), l.err)
	}
	return nil
}

// settleOld makes what an earlier run wrote durable, so that all before this run
// is, and opens the segment if it takes appends.
func (l *Log) settleOld(seg *segment) error {
	if seg.sealed && seg.size == seg.used && seg.end() <= l.survey.synced {
		return nil
	}
	file, err := l.fs.Open(seg.name)
	if err != nil {
		return err
	}
	if l.opts.SyncInterval >= 0 {
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

// rewrite writes again what a run before may have failed to sync. The system may
// believe it to be on disk, and would not sync it a second time.
func (l *Log) rewrite(file vfs.File, seg *segment) error {
	if l.survey.clean || l.survey.run.interval < 0 || seg.end() <= l.survey.synced {
		return nil
	}
	off := int64(0)
	if l.survey.synced > seg.base {
		off = int64(l.survey.synced - seg.base)
	}
	buf := make([]byte, min(1<<20, seg.used-off))
	for off < seg.used {
		b := buf[:min(int64(len(buf)), seg.used-off)]
		if n, err := file.ReadAt(b, off); n < len(b) {
			return err
		}
		if _, err := file.WriteAt(b, off); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}

// adopt takes over the spare segments of an earlier run. From the first one that
// is of no use on, they are removed: their numbers must follow each other.
func (l *Log) adopt(spare []segmentFile) error {
	for i, f := range spare {
		file, err := l.fs.Open(f.name)
		if err != nil {
			return err
		}
		size := f.size
		if err := file.Allocate(l.opts.SegmentSize); err == nil {
			size = max(size, l.opts.SegmentSize)
		} else if !vfs.IsNoSpace(err) || size < MinSegmentSize {
			err := file.Close()
			for _, f := range spare[i:] {
				err = errors.Join(err, l.fs.Remove(f.name))
			}
			return err
		}
		seg := &segment{name: f.name, size: size, file: file, start: checksumStart(l.seed, f.index)}
		seg.index = f.index
		l.spares = append(l.spares, seg)
		l.nextIndex = f.index + 1
		l.room.free += capacity(size)
		l.room.disk += size
	}
	return nil
}

// beginFirst begins a segment where there is none to go on in.
func (l *Log) beginFirst() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.spares) == 0 {
		if err := l.allocate(0); err != nil {
			return fmt.Errorf("first segment: %w", spaceError(err))
		}
	}
	seg := l.spares[0]
	l.spares = l.spares[1:]
	l.begin(seg)
	l.room.free -= capacity(seg.size)
	l.room.free += seg.limit() - seg.used
	return nil
}
