package vfs_test

import (
	"bytes"
	"hash/crc32"
	"path/filepath"
	"testing"

	"trellis/binlog/vfs"
)

func contentsOf(t *testing.T, name string) []byte {
	t.Helper()
	file, err := vfs.OS{}.OpenRead(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if _, err := file.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestASequentialWritesFilesFromStartToEnd(t *testing.T) {
	dir := t.TempDir()
	var w vfs.Sequential
	for n, name := range []string{"a", "b"} {
		name = filepath.Join(dir, name)
		if err := w.Create(vfs.OS{}, name); err != nil {
			t.Fatal(err)
		}
		var want []byte
		for i := range 3 << 10 {
			line := bytes.Repeat([]byte{byte(i + n)}, 1<<10)
			want = append(want, line...)
			copy(w.Extend(len(line)), line)
			if err := w.Spill(); err != nil {
				t.Fatal(err)
			}
			if i == 1<<10 {
				if err := w.Sync(); err != nil || len(w.Buf) != 0 {
					t.Fatal(len(w.Buf), err)
				}
			}
			if w.Size() != int64(len(want)) {
				t.Fatalf("the size is said to be %d, not %d", w.Size(), len(want))
			}
		}
		sum, err := w.Finish()
		if err != nil || w.Open() {
			t.Fatal(w.Open(), err)
		}
		if !bytes.Equal(contentsOf(t, name), want) {
			t.Errorf("%s is not what was written", name)
		}
		if crc := crc32.Checksum(want, crc32.MakeTable(crc32.Castagnoli)); sum != crc {
			t.Errorf("%s has the checksum %x, not %x", name, crc, sum)
		}
	}
	if err := w.Abandon(); err != nil {
		t.Error(err)
	}
}

func TestASequentialKeepsNoLargeBuffer(t *testing.T) {
	var w vfs.Sequential
	if err := w.Create(vfs.OS{}, filepath.Join(t.TempDir(), "a")); err != nil {
		t.Fatal(err)
	}
	defer w.Abandon()
	for range 3 {
		clear(w.Extend(16 << 20))
		if cap(w.Buf) > 20<<20 {
			t.Errorf("%d bytes of memory for one record", cap(w.Buf))
		}
		if err := w.Spill(); err != nil {
			t.Fatal(err)
		}
		if cap(w.Buf) > 4<<20 {
			t.Errorf("%d bytes of memory are kept", cap(w.Buf))
		}
	}
}

func TestAnAbandonedFileIsClosedAndTheNextOneIsWhole(t *testing.T) {
	dir := t.TempDir()
	var w vfs.Sequential
	if err := w.Create(vfs.OS{}, filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	copy(w.Extend(3), "abc")
	if err := w.Abandon(); err != nil || w.Open() {
		t.Fatal(w.Open(), err)
	}
	name := filepath.Join(dir, "b")
	if err := w.Create(vfs.OS{}, name); err != nil {
		t.Fatal(err)
	}
	copy(w.Extend(2), "de")
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	if got := string(contentsOf(t, name)); got != "de" {
		t.Errorf("the file holds %q", got)
	}
}
