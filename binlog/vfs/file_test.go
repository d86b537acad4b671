package vfs_test

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"syscall"
	"testing"

	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

func content(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	f, err := fsys.OpenRead(name)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestADirectoryIsRemovedWithAllThatIsInIt(t *testing.T) {
	t.Parallel()
	disk := faultfs.New("d")
	for _, err := range []error{
		disk.Mkdir("d/e"), disk.Mkdir("d/e/empty"), disk.Mkdir("d/e/full"),
		vfs.WriteFile(disk, "d/e/full/f", []byte("x")), vfs.WriteFile(disk, "d/other", []byte("x")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // also if there is none
		if err := vfs.RemoveAll(disk, "d/e"); err != nil {
			t.Fatal(err)
		}
		if list, err := disk.List("d"); err != nil || len(list) != 1 || list[0].Name != "other" {
			t.Fatalf("there is %v, %v", list, err)
		}
	}
	disk.Hook(func(c faultfs.Call) faultfs.Fault { return faultfs.Fault{Err: syscall.EIO} })
	if err := vfs.RemoveAll(disk, "d"); !errors.Is(err, syscall.EIO) {
		t.Errorf("a directory that cannot be removed is: %v", err)
	}
}

// Whatever call a power cut interrupts, one content or the other is there, and the next
// Replace succeeds.
func TestAFileIsReplacedAsAWhole(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		disk := faultfs.New("d")
		if err := vfs.Replace(disk, "d/f", []byte("first")); err != nil {
			t.Fatal(err)
		}
		before := disk.Calls()
		disk.Hook(func(c faultfs.Call) faultfs.Fault { return faultfs.Fault{Off: c.N == before+n} })
		err := vfs.Replace(disk, "d/f", []byte("second"))
		if err == nil && disk.Calls() < before+n {
			break
		}
		for seed := range uint64(5) {
			after := disk.PowerCut(rand.New(rand.NewPCG(seed, 1)))
			if got := content(t, after, "d/f"); got != "first" && got != "second" || err == nil && got == "first" {
				t.Errorf("power cut at call %d: the file holds %q", n, got)
			}
			if err := vfs.Replace(after, "d/f", []byte("third")); err != nil {
				t.Fatal(err)
			}
			if got := content(t, after, "d/f"); got != "third" {
				t.Errorf("the file holds %q", got)
			}
		}
	}
}

func TestAFileThatCannotBeWrittenIsRemoved(t *testing.T) {
	t.Parallel()
	disk := faultfs.New("d")
	boom := errors.New("boom")
	disk.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "sync" {
			return faultfs.Fault{Err: boom}
		}
		return faultfs.Fault{}
	})
	if err := vfs.WriteFile(disk, "d/f", []byte("x")); !errors.Is(err, boom) {
		t.Fatal(err)
	}
	if es, err := disk.List("d"); err != nil || len(es) != 0 {
		t.Errorf("%v, %v", es, err)
	}
}
