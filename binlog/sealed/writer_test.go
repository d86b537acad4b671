package sealed_test

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/sealed"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

const dir = "/log"

// put writes jobs with bodies of these lengths, by id.
func put(t *testing.T, w *sealed.Writer, bodies ...int) {
	t.Helper()
	for i, n := range bodies {
		r := journal.Record{ID: uint64(i + 1), State: journal.Ready, TTR: 1, Tube: "mail", Body: bytes.Repeat([]byte{'x'}, n)}
		b, salt, err := w.Place(r.Size())
		if err != nil {
			t.Fatal(err)
		}
		record.EncodeFull(b, salt, &r)
		w.LastID = r.ID
	}
}

// segment is what a segment's file holds.
type segment struct {
	header record.Header
	kinds  []record.Kind
	ids    []uint64 // of full records
	end    uint64   // the number in the end record
	size   int64
	sum    uint32
}

func readSegment(t *testing.T, fs vfs.FS, index uint32) segment {
	t.Helper()
	file, err := fs.OpenRead(filepath.Join(dir, record.FileName(index)))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	if _, err := file.ReadAt(data, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	s := segment{size: size, sum: crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))}
	if err := s.header.Decode(data); err != nil {
		t.Fatal(err)
	}
	var scanner record.Scanner
	scanner.Reset(bytes.NewReader(data), &s.header, size)
	for {
		b, err := scanner.Next()
		if err != nil {
			t.Fatal(err)
		}
		kind := record.KindOf(b)
		s.kinds = append(s.kinds, kind)
		switch kind {
		case record.Full:
			s.ids = append(s.ids, record.Number(b))
		case record.End:
			s.end = record.Number(b)
			return s
		}
	}
}

func TestSegmentsFollowEachOtherAndAreSealed(t *testing.T) {
	fs := faultfs.New(dir)
	w := &sealed.Writer{FS: fs, Dir: dir, Limit: 1 << 10, Seed: 7, Index: 3, Base: 4096, Boot: 5}
	put(t, w, 300, 300, 300, 5000, 10)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var (
		ids  []uint64
		base = journal.Pos(4096)
		last uint64
	)
	for i, done := range w.Sealed {
		s := readSegment(t, fs, uint32(3+i))
		h := s.header
		if h.Index != uint32(3+i) || h.Oldest != 3 || h.Base != base || h.Synced != base || h.Seed != 7 || h.Boot != 5 || h.LastID != last {
			t.Errorf("segment %d has the header %+v", i, h)
		}
		if s.size != done.Size || s.sum != done.Sum {
			t.Errorf("segment %d: %d bytes with the checksum %x, not %+v", i, s.size, s.sum, done)
		}
		if s.size > 1<<10 && len(s.ids) != 1 {
			t.Errorf("segment %d has %d bytes and the jobs %d", i, s.size, s.ids)
		}
		ids = append(ids, s.ids...)
		base += journal.Pos(s.size)
		last = s.end
	}
	if !slices.Equal(ids, []uint64{1, 2, 3, 4, 5}) || last != 5 || w.Base != base || len(w.Sealed) < 3 {
		t.Errorf("jobs %d, last id %d, %d segments up to %d, not %d", ids, last, len(w.Sealed), w.Base, base)
	}
}

func TestThereIsASegmentWithoutRecords(t *testing.T) {
	fs := faultfs.New(dir)
	w := &sealed.Writer{FS: fs, Dir: dir, Limit: 1 << 10, Seed: 7, Index: 1, LastID: 9}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if s := readSegment(t, fs, 1); !slices.Equal(s.kinds, []record.Kind{record.End}) || s.end != 9 || s.header.LastID != 9 {
		t.Errorf("%+v", s)
	}
}

func TestAStopRecordStandsBeforeTheEndAndFitsIn(t *testing.T) {
	for body := range 64 {
		fs := faultfs.New(dir)
		w := &sealed.Writer{FS: fs, Dir: dir, Limit: 1 << 10, Seed: 7, Index: 1}
		put(t, w, 300, 300+body, 10)
		if err := errors.Join(w.Stop(), w.Close()); err != nil {
			t.Fatal(err)
		}
		for i := range w.Sealed {
			s := readSegment(t, fs, uint32(1+i))
			stops := slices.Index(s.kinds, record.Stop)
			if last := i == len(w.Sealed)-1; last != (stops == len(s.kinds)-2) || s.size > 1<<10 {
				t.Errorf("body of %d: segment %d has %d bytes and the records %v", body, i, s.size, s.kinds)
			}
		}
	}
}

func TestWhatWasClosedOutlivesAPowerCut(t *testing.T) {
	fs := faultfs.New(dir)
	w := &sealed.Writer{FS: fs, Dir: dir, Limit: 1 << 10, Seed: 7, Index: 1}
	put(t, w, 300, 300, 300)
	if err := errors.Join(w.Close(), vfs.SyncDir(fs, dir)); err != nil {
		t.Fatal(err)
	}
	after := fs.PowerCut(rand.New(rand.NewPCG(1, 2)))
	var ids []uint64
	for i := range w.Sealed {
		ids = append(ids, readSegment(t, after, uint32(1+i)).ids...)
	}
	if !slices.Equal(ids, []uint64{1, 2, 3}) {
		t.Errorf("jobs %d", ids)
	}
}
