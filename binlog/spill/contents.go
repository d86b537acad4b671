package spill

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Contents are what a body file has, which was read from its start to its end.
type Contents struct {
	File
	Sealed bool                  // it has an end record: all of it was on disk for certain
	Wrong  []*record.DamageError // the places where it has no sound record
}

// Read reads all of a body file, which may be written to meanwhile. Its error is one of opening or closing it.
func Read(fsys vfs.FS, dir string, number uint32) (c Contents, err error) {
	name := filepath.Join(dir, record.FileName(number))
	c.Number = number
	f := summed{}
	if f.File, err = fsys.OpenRead(name); err != nil {
		return c, err
	}
	defer func() { err = cmp.Or(err, f.Close()) }()
	if c.Size, err = f.Size(); err != nil {
		return c, err
	}
	wrong := func(at int64, why error) {
		d := &record.DamageError{File: name, Offset: at, What: why.Error()}
		if bad, ok := errors.AsType[*record.BadError](why); ok {
			d.Err = bad.Err
		}
		c.Wrong = append(c.Wrong, d)
	}
	var b [record.HeaderSize]byte
	var h record.Header
	n, failed := f.ReadAt(b[:], 0)
	why := h.Decode(b[:n])
	if n < len(b) && c.Size >= int64(len(b)) {
		why = &record.BadError{What: "the header cannot be read", Err: failed}
	}
	if why == nil && h.Index != number {
		why = fmt.Errorf("the header is that of file %d", h.Index)
	}
	if why != nil {
		wrong(0, why)
		return c, nil
	}
	c.Seed = h.Seed
	var sc record.Scanner
	sc.Reset(&f, &h, c.Size)
	for rec, gap := range sc.Records() {
		switch {
		case gap != nil:
			wrong(gap.Offset, gap.Err)
		case record.KindOf(rec) == record.Full:
			c.Records++
			c.Bodies += int64(len(record.Body(rec)))
		case record.KindOf(rec) == record.End && sc.Offset() == c.Size:
			c.Sealed = true
		default:
			wrong(sc.Offset()-int64(len(rec)), fmt.Errorf("a %v record is there", record.KindOf(rec)))
		}
	}
	c.Sum = f.sum
	return c, nil
}

// summed computes the checksum of a file that is read from its start to its end.
type summed struct {
	vfs.File
	sum  uint32
	next int64 // bytes that were read
}

// ReadAt implements io.ReaderAt.
func (s *summed) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.File.ReadAt(p, off)
	if off == s.next {
		s.sum = crc32.Update(s.sum, castagnoli, p[:n])
		s.next += int64(n)
	}
	return n, err
}
