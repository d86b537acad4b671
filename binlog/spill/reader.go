package spill

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

const (
	window  = 128 << 10 // bytes that are read at a time
	windows = 16        // files that are open at a time
)

// Reader reads the bodies that a list of files has, for those who need them one after the other: best in the order in
// which they lie. It needs no Store. It is for one goroutine, and takes 2 MiB and the longest record.
type Reader struct {
	find  func(number uint32) (File, bool)
	dir   string
	open  func(number uint32) (io.ReaderAt, error)
	files map[uint32]*opened
	large []byte
}

// opened is a file that is being read.
type opened struct {
	io.ReaderAt
	size int64
	at   int64 // of buf in the file
	buf  []byte
}

// NewReader makes a Reader of files of a list in a directory of body files.
func NewReader(fsys vfs.FS, dir string, list []File) *Reader {
	r := newReader(dir, list)
	r.open = func(n uint32) (io.ReaderAt, error) { return fsys.OpenRead(r.name(n)) }
	return r
}

// Reader makes a Reader of files of a list that somebody holds meanwhile; with nil of all files as they are, which may
// go. It waits for its turn in the lane of compaction, and ends with the life.
func (l *Life) Reader(list []File) *Reader {
	r := newReader(l.store.Dir, list)
	if list == nil {
		r.find = l.store.find
	}
	r.open = func(n uint32) (io.ReaderAt, error) { return l.reader.Range(n), nil }
	return r
}

func newReader(dir string, list []File) *Reader {
	files := map[uint32]File{}
	for _, f := range list {
		files[f.Number] = f
	}
	find := func(n uint32) (File, bool) {
		f, ok := files[n]
		return f, ok
	}
	return &Reader{find: find, dir: dir, files: map[uint32]*opened{}}
}

// find is the file of that number as far as it is on disk for certain.
func (s *Store) find(number uint32) (File, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.books.files[number]
	if f == nil {
		return File{}, false
	}
	return f.File, true
}

func (r *Reader) name(number uint32) string { return filepath.Join(r.dir, record.FileName(number)) }

// Body reads a body, which is valid until the next call. A *record.DamageError tells that it is not where it should be.
func (r *Reader) Body(x *journal.Fetch) ([]byte, error) {
	at := int64(x.Place.Offset) * 8
	damage := func(err error) error {
		return &record.DamageError{
			File: r.name(x.Place.Segment), Offset: at, What: fmt.Sprintf("the body of job %d is not there", x.ID), Err: err,
		}
	}
	f, ok := r.find(x.Place.Segment)
	if !ok {
		return nil, damage(nil)
	}
	o, err := r.file(&f)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, damage(err)
	}
	if err != nil {
		return nil, err
	}
	b, err := r.bytes(o, at, min(record.SmallSize, f.Size-at))
	if err == nil && len(b) == record.SmallSize {
		b, err = r.bytes(o, at, min(record.Length(b), f.Size-at))
	}
	if errors.Is(err, ErrEnded) || errors.Is(err, journal.ErrHangs) {
		return nil, err
	}
	if err != nil {
		return nil, damage(err)
	}
	b, err = record.First(b, f.Number, record.NewSalt(f.Seed, f.Number))
	if err != nil || record.KindOf(b) != record.Full || record.Number(b) != x.ID || len(record.Body(b)) != int(x.Size) {
		return nil, damage(err)
	}
	return record.Body(b), nil
}

// file is a file of the list. Another one is closed for it if too many are open.
func (r *Reader) file(x *File) (*opened, error) {
	if o := r.files[x.Number]; o != nil {
		o.size = x.Size // it may have grown
		return o, nil
	}
	for n := range r.files {
		if len(r.files) < windows {
			break
		}
		r.close(n)
	}
	f, err := r.open(x.Number)
	if err != nil {
		return nil, err
	}
	o := &opened{ReaderAt: f, size: x.Size}
	r.files[x.Number] = o
	return o, nil
}

// bytes are n bytes of a file, none if n is below zero.
func (r *Reader) bytes(o *opened, at, n int64) ([]byte, error) {
	if n <= 0 {
		return nil, nil
	}
	if i := at - o.at; i >= 0 && i+n <= int64(len(o.buf)) {
		return o.buf[i : i+n], nil
	}
	if n > window {
		if int64(cap(r.large)) < n {
			r.large = make([]byte, n)
		}
		m, err := o.ReadAt(r.large[:n], at)
		return r.large[:n], short(m, int(n), err)
	}
	if o.buf == nil {
		o.buf = make([]byte, 0, window)
	}
	want := int(min(window, o.size-at)) // nothing behind the end: to the disk's lanes that would be damage
	m, err := o.ReadAt(o.buf[:want], at)
	o.at, o.buf = at, o.buf[:m]
	if err = short(m, int(n), err); err != nil {
		return nil, err
	}
	return o.buf[:n], nil
}

// short is the error of a read of n bytes that has brought m.
func short(m, n int, err error) error {
	if m >= n {
		return nil
	}
	return cmp.Or(err, io.ErrUnexpectedEOF)
}

func (r *Reader) close(number uint32) error {
	o := r.files[number]
	delete(r.files, number)
	if c, ok := o.ReaderAt.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Close closes the files.
func (r *Reader) Close() (err error) {
	for n := range r.files {
		err = errors.Join(err, r.close(n))
	}
	return err
}
