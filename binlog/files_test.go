package binlog

import (
	"bytes"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"trellis/binlog/record"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

// files are the contents of a directory's files.
type files map[string][]byte

func readFiles(t testing.TB, fs vfs.FS, dir string) files {
	t.Helper()
	es, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := files{}
	for _, e := range es {
		if e.Dir {
			continue
		}
		f, err := fs.OpenRead(filepath.Join(dir, e.Name))
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, e.Size)
		if n, err := f.ReadAt(b, 0); n < len(b) {
			t.Fatal(err)
		}
		m[e.Name] = b
		f.Close()
	}
	return m
}

// fs is a file system with these files, all durable.
func (m files) fs(t testing.TB) *faultfs.FS {
	t.Helper()
	fs := faultfs.New(testDir)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		f, err := fs.Create(filepath.Join(testDir, name), int64(len(m[name])))
		if err == nil {
			_, err = f.WriteAt(m[name], 0)
		}
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := vfs.SyncDir(fs, testDir); err != nil {
		t.Fatal(err)
	}
	return fs
}

func (m files) clone() files {
	c := files{}
	for name, b := range m {
		c[name] = slices.Clone(b)
	}
	return c
}

// end is the offset behind the last record of a segment.
func (m files) end(t testing.TB, name string) int {
	t.Helper()
	var h record.Header
	if what := h.Decode(m[name]); what != nil {
		t.Fatalf("%s: %s", name, what)
	}
	var sc record.Scanner
	sc.Reset(bytes.NewReader(m[name]), &h, int64(len(m[name])))
	for {
		b, err := sc.Next()
		if err != nil {
			t.Fatalf("%s ends without an end or a stop record: %v", name, err)
		}
		if k := record.KindOf(b); k == record.End || k == record.Stop && allZeros(m[name][sc.Offset():]) {
			return int(sc.Offset())
		}
	}
}

// segments are the names of the segments that were written to, in their order.
func (m files) segments() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if record.FileIndex(name) != 0 && !allZeros(m[name]) {
			names = append(names, name)
		}
	}
	return names
}

func allZeros(b []byte) bool {
	return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 })
}
