package binlog

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"trellis/binlog/inspect"
	"trellis/binlog/internal/index"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// maxBehind is how many bytes of indexes wait to be written before a segment goes without one.
const maxBehind = 4 << 20

// indexer makes the index of each segment whose records it is told all of. Nothing depends on an index, so
// that an error means that there is none.
type indexer struct {
	fs  vfs.FS
	dir string
	// grown counts so many bytes more, or fewer, of a segment's index. It is called without locks.
	grown func(seg *segment, n int64)
	boot  uint64         // 0 if this run syncs
	draft *index.Builder // of the segment that is filled, or nil; wmu of the log guards it, before Start nothing

	mu     sync.Mutex
	tasks  []indexTask // in their order
	behind int64       // bytes in them
	woken  chan struct{}

	doing []indexTask // of the goroutine

	files map[uint32]*indexFile // begun, by segment; of the goroutine, before Start and after its end of the caller
}

// indexTask is something to be done with the index of a segment. One of these is set.
type indexTask struct {
	seg     *segment
	bytes   []byte         // follow
	last    *index.Builder // has the rest, once the segment is durable
	durable bool           // the segment is
	none    bool           // there is to be none any more
}

// indexFile is an index that is being written.
type indexFile struct {
	vfs.File
	seg  *segment
	size int64
	last *index.Builder
}

// newIndexer returns nil if there are to be no indexes: without syncs, one counts until the machine stops, which has
// to be known.
func newIndexer(l *Log) *indexer {
	x := &indexer{
		fs: l.fs, dir: l.dir, grown: l.indexGrown, woken: make(chan struct{}, 1), files: map[uint32]*indexFile{},
	}
	if l.opts.Sync == SyncNever {
		if x.boot = l.boot; x.boot == 0 {
			return nil
		}
	}
	return x
}

// begin begins the index of a segment, whose records follow. Those of the segment before are all there.
func (x *indexer) begin(seg *segment) { x.draft = index.NewBuilder(&seg.Header, x.boot) }

// written takes whole records, which were written to a segment from that offset on. It reports whether there is work.
func (x *indexer) written(seg *segment, offset int64, b []byte) (posted bool) {
	if offset == 0 {
		x.begin(seg)
		offset, b = record.HeaderSize, b[record.HeaderSize:]
	}
	for d := x.draft; x.draft != nil && len(b) > 0; {
		n := record.Length(b)
		d.Add(offset, b[:n])
		if record.KindOf(b) == record.End {
			x.draft = nil
			x.post(indexTask{seg: seg, last: d})
			return true
		}
		if out := d.Take(); out != nil {
			if posted = true; !x.post(indexTask{seg: seg, bytes: out}) {
				x.draft = nil
				x.post(indexTask{seg: seg, none: true})
			}
		}
		offset, b = offset+n, b[n:]
	}
	return posted
}

// post has a task done by the goroutine. It reports false if that is too far behind to write more.
func (x *indexer) post(t indexTask) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(t.bytes) > 0 && x.behind+int64(len(t.bytes)) > maxBehind {
		return false
	}
	x.behind += int64(len(t.bytes))
	x.tasks = append(x.tasks, t)
	wake(x.woken)
	return true
}

// work does what was posted.
func (x *indexer) work() {
	for {
		x.mu.Lock()
		x.tasks, x.doing = x.doing[:0], x.tasks
		x.mu.Unlock()
		if len(x.doing) == 0 {
			return
		}
		for i, t := range x.doing {
			x.do(t)
			x.doing[i] = indexTask{}
			x.mu.Lock()
			x.behind -= int64(len(t.bytes))
			x.mu.Unlock()
			index.Free(t.bytes)
		}
	}
}

// runIndexer is the goroutine that writes indexes.
func (l *Log) runIndexer() {
	for {
		select {
		case <-l.stop:
			return
		case <-l.index.woken:
			l.index.work()
		}
	}
}

// do does a task. After an error there is no index.
func (x *indexer) do(t indexTask) {
	f := x.files[t.seg.Index]
	var err error
	switch {
	case t.bytes != nil:
		f, err = x.write(t.seg, f, t.bytes)
	case t.last != nil && f == nil:
		x.files[t.seg.Index] = &indexFile{seg: t.seg, last: t.last}
		return
	case t.last != nil:
		f.last = t.last
	case t.durable && f == nil:
		return // it has one from an earlier run, or there is none
	case t.durable:
		err = x.finish(t.seg, f)
	}
	if err == nil && !t.none {
		return
	}
	if f != nil && f.File != nil {
		f.Close()
	}
	delete(x.files, t.seg.Index)
	x.fs.Remove(x.name(t.seg)) // often there is none
	x.grown(t.seg, -t.seg.indexed)
}

// indexGrown counts bytes of the index of a segment, which takes room as the segment does. It is called on the
// goroutine that writes indexes.
func (l *Log) indexGrown(seg *segment, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seg.indexed += n
	l.room.disk += n
	if !seg.dropped {
		l.room.indexes += n
	}
	l.pace()
}

func (x *indexer) name(seg *segment) string {
	return filepath.Join(x.dir, inspect.IndexName(seg.Index))
}

// write writes what follows in an index, whose file is nil before its first bytes.
func (x *indexer) write(seg *segment, f *indexFile, b []byte) (*indexFile, error) {
	if f == nil {
		f = &indexFile{seg: seg}
		x.files[seg.Index] = f
	}
	if f.File == nil {
		if f.size > 0 {
			return f, os.ErrClosed
		}
		file, err := x.fs.Create(x.name(seg), 0)
		if errors.Is(err, os.ErrExist) { // one that has turned out to be bad
			if err = x.fs.Remove(x.name(seg)); err == nil {
				file, err = x.fs.Create(x.name(seg), 0)
			}
		}
		if err != nil {
			return f, err
		}
		f.File = file
	}
	_, err := f.WriteAt(b, f.size)
	f.size += int64(len(b))
	x.grown(seg, int64(len(b)))
	return f, err
}

// finish writes the end of the index of a durable segment.
func (x *indexer) finish(seg *segment, f *indexFile) error {
	file, err := x.fs.OpenRead(seg.name)
	if err != nil {
		return err
	}
	tail, err := index.Tail(file, seg.used)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if f, err = x.write(seg, f, f.last.Finish(seg.used, tail)); err != nil {
		return err
	}
	err = f.Close()
	f.File = nil
	if err == nil {
		delete(x.files, seg.Index)
	}
	return err
}

// close removes what is not finished. No goroutine uses x any more.
func (x *indexer) close() {
	x.work()
	for _, f := range x.files {
		x.do(indexTask{seg: f.seg, none: true})
	}
}

// removeStale removes the indexes of an earlier run that the survey does not believe, before anything is appended:
// what they are of may have been cut off, and the numbers of their segments be used again.
func (l *Log) removeStale(s *inspect.Survey) error {
	removed := false
	for _, name := range s.Indexes {
		if !slices.ContainsFunc(s.Segments, func(f inspect.File) bool {
			return f.Contents != nil && inspect.IndexName(f.Index) == filepath.Base(name)
		}) {
			if err := l.fs.Remove(name); err != nil {
				return err
			}
			removed = true
		}
	}
	if !removed {
		return nil
	}
	return l.entries.Sync()
}

// indexed tells what the index of a segment says. An error of the index means that it has to be read.
func (r *replay) indexed(seg *segment, x *index.Index) error {
	return x.Read(index.States, func(offset int64, b []byte) error { return r.record(seg, offset, b) })
}
