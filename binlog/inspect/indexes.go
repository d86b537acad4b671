package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"trellis/binlog/internal/index"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

const indexSeries = vfs.Series("index.")

// IndexName is the name of the file of the index of the segment with that number.
func IndexName(segment uint32) string { return indexSeries.Name(segment) }

// named reads a file that is open only while it is read: there may be thousands.
type named struct {
	fs   vfs.FS
	name string
}

// ReadAt implements io.ReaderAt.
func (n named) ReadAt(b []byte, off int64) (int, error) {
	f, err := n.fs.OpenRead(n.name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.ReadAt(b, off)
}

// believed is the index of a file with a right header, nil if there is none that can be believed. An index of a run
// that syncs is not believed unless a later record says that all of its segment was on disk: the segment may have been
// cut since, and filled again. One of a run that does not sync counts until the machine stops,
// and not afterwards, whatever is said later.
func (s *Survey) believed(f *File) *index.Index {
	if !s.use || !slices.Contains(s.Indexes, filepath.Join(s.dir, IndexName(f.Index))) {
		return nil
	}
	x, err := s.openIndex(f)
	if err != nil || x.Used > f.Size || x.Boot != 0 && x.Boot != s.boot {
		return nil
	}
	if tail, err := index.Tail(named{s.fs, f.Name}, x.Used); err != nil || tail != x.Tail {
		return nil
	}
	last := &s.Files[len(s.Files)-1]
	if f == last || x.Boot == 0 && f.Base+journal.Pos(x.Used) > s.durable {
		return nil
	}
	return x
}

// findDurable finds a position before which everything was on disk, by headers and what the last segment says, which is
// read until it calls all segments before it durable: no index is of more. Segments between them say less.
func (s *Survey) findDurable(sc *record.Scanner) error {
	ahead := Survey{Synced: 0}
	for _, f := range s.Files {
		if f.Wrong == nil {
			ahead.Synced = max(ahead.Synced, f.Synced)
		}
	}
	last := &s.Files[len(s.Files)-1]
	for b, gap := range last.Records(s.fs, s.Seed, sc) {
		if gap == nil {
			ahead.noteDurable(record.KindOf(b), b)
		}
		if last.Wrong == nil && ahead.Synced >= last.Base {
			break
		}
	}
	s.durable = ahead.Synced
	return sc.Err()
}

// openIndex is the index of a file with a right header.
func (s *Survey) openIndex(f *File) (*index.Index, error) {
	return openIndex(s.fs, filepath.Join(s.dir, IndexName(f.Index)), &f.Header)
}

func openIndex(fs vfs.FS, name string, h *record.Header) (*index.Index, error) {
	file, err := fs.OpenRead(name)
	if err != nil {
		return nil, err
	}
	size, err := file.Size()
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	return index.Open(named{fs, name}, size, h)
}

// readIndex adds what an index says of its segment, but for its jobs. If it reports false, the segment has to be read,
// which may add the same again.
func (s *Survey) readIndex(seg *File, x *index.Index) bool {
	sealed := false
	note := func(_ int64, b []byte) error {
		k := record.KindOf(b)
		s.noteDurable(k, b)
		if sealed = sealed || k == record.End; k != record.Mark { // which stands at the end, wherever it was
			s.note(k, b)
		}
		return nil
	}
	if x.Read(index.Ends, note) != nil || x.Read(index.Notes, note) != nil || !sealed {
		return false
	}
	s.Records += x.Records(index.States) + x.Records(index.Ends)
	seg.Used, seg.Sealed, seg.Contents = x.Used, true, x
	return true
}

// differs tells in what the index of a segment is not what its records make, nil if in nothing, or if it is of no use.
func (s *Survey) differs(f *File, x *index.Index) error {
	b := index.NewBuilder(&f.Header, x.Boot)
	var sc record.Scanner
	want := []byte(nil)
	for rec, gap := range sc.File(s.fs, f.Name, &f.Header, x.Used) {
		if gap != nil {
			return fmt.Errorf("offset %d: %w", gap.Offset, gap.Err)
		}
		b.Add(sc.Offset()-int64(len(rec)), rec)
		want = append(want, b.Take()...)
	}
	want = append(want, b.Finish(x.Used, x.Tail)...)
	got := make([]byte, len(want))
	file := named{s.fs, filepath.Join(s.dir, IndexName(f.Index))}
	if n, _ := file.ReadAt(got, 0); n < len(got) || !bytes.Equal(got, want) {
		return errors.New("it is not what the records of its segment say")
	}
	return sc.Err()
}

// verifyIndexes writes what the indexes are like. It returns an error if a restart might believe a wrong one.
func (s *Survey) verifyIndexes(lines *printer) (err error) {
	for i := range s.Segments {
		f := &s.Segments[i]
		if !slices.Contains(s.Indexes, filepath.Join(s.dir, IndexName(f.Index))) {
			continue
		}
		x, e := s.openIndex(f)
		if e != nil {
			lines.print("%s: %v: the segment will be read\n", IndexName(f.Index), e)
			continue
		}
		if e := s.differs(f, x); e != nil {
			lines.print("%s: WRONG: %v\n", IndexName(f.Index), e)
			err = errors.Join(err, fmt.Errorf("%s is wrong: remove it: %w", IndexName(f.Index), e))
			continue
		}
		lines.print("%s: index, %d records, %d deletes\n", IndexName(f.Index), x.Records(index.States), x.Records(index.Ends))
	}
	return err
}

// index writes what the index of a segment says, if there is a whole one.
func (d *dumper) index(s *Survey, f *File) error {
	if !slices.Contains(s.Indexes, filepath.Join(s.dir, IndexName(f.Index))) || f.Wrong != nil {
		return nil
	}
	x, err := s.openIndex(f)
	return d.contents(IndexName(f.Index), x, err)
}

// DumpIndex writes what an index in a directory says, as Dump does, of records that need not be in the segment with
// that header.
func DumpIndex(w io.Writer, fs vfs.FS, dir, name string, h *record.Header) error {
	d := &dumper{printer: printer{w: w}}
	x, err := openIndex(fs, filepath.Join(dir, name), h)
	return errors.Join(d.contents(name, x, err), d.err)
}

// contents writes what an index says, which could be opened or not.
func (d *dumper) contents(name string, x *index.Index, err error) error {
	for _, kind := range []index.Kind{index.States, index.Notes, index.Ends} {
		if err == nil {
			err = x.Read(kind, func(offset int64, b []byte) error {
				d.print("%s ", name)
				if n := x.File(); n != 0 {
					d.print("%s ", record.FileName(n))
				}
				d.print("%d %s ", offset, record.KindOf(b))
				d.record(b)
				return d.err
			})
		}
	}
	switch {
	case errors.Is(err, index.ErrUnfinished): // a server may be about to
		d.print("%s 0 unfinished\n", name)
	case errors.Is(err, index.ErrBad):
		d.print("%s 0 BAD %v\n", name, err)
	default:
		return err
	}
	return nil
}
