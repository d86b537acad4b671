package faultfs

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"syscall"
	"testing"

	"trellis/binlog/vfs"
)

func read(t *testing.T, f *FS, name string) []byte {
	t.Helper()
	file, err := f.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	n, _ := file.Size()
	b := make([]byte, n)
	if _, err := file.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAPowerCutKeepsWhatWasSyncedAndMayLoseTheRest(t *testing.T) {
	f := New("d")
	file, err := f.Create("d/a", 2048)
	if err != nil {
		t.Fatal(err)
	}
	synced := bytes.Repeat([]byte{1}, 600)
	for _, err := range []error{
		func() error { _, err := file.WriteAt(synced, 0); return err }(),
		file.Sync(), vfs.SyncDir(f, "d"),
		func() error { _, err := file.WriteAt(bytes.Repeat([]byte{2}, 1200), 600); return err }(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Create("d/b", 0); err != nil {
		t.Fatal(err)
	}
	var kept, lost, torn, named bool
	for seed := range uint64(200) {
		g := f.PowerCut(rand.New(rand.NewPCG(seed, 0)))
		b := read(t, g, "d/a")
		if len(b) != 2048 || !bytes.Equal(b[:600], synced) {
			t.Fatalf("what was synced is lost: %v", b[:600])
		}
		kept = kept || b[1100] == 2
		lost = lost || b[1100] == 0
		torn = torn || b[1024] == 2 && b[1100] == 0
		_, _, node, _ := g.lookup("d/b")
		named = named || node != nil
	}
	if !kept || !lost || !torn || !named {
		t.Fatalf("kept %v, lost %v, torn %v, named %v: want all", kept, lost, torn, named)
	}
	if _, err := file.WriteAt(synced, 0); !errors.Is(err, ErrOff) {
		t.Fatalf("write after the power cut: %v", err)
	}
}

func TestAKillLosesNothing(t *testing.T) {
	f := New("d")
	file, _ := f.Create("d/a", 0)
	if _, err := file.WriteAt([]byte("hello"), 0); err != nil {
		t.Fatal(err)
	}
	if got := read(t, f.Killed(), "d/a"); string(got) != "hello" {
		t.Fatalf("got %q", got)
	}
}

func TestAFullDiskRefusesToGrowFiles(t *testing.T) {
	f := New("d")
	f.SetCapacity(1000)
	file, err := f.Create("d/a", 800)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Create("d/b", 300); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("create: %v", err)
	}
	if err := file.Allocate(1100); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("allocate: %v", err)
	}
	if _, err := file.WriteAt(make([]byte, 800), 0); err != nil {
		t.Fatalf("write within the file: %v", err)
	}
}

func TestAHookFailsCalls(t *testing.T) {
	f := New("d")
	file, _ := f.Create("d/a", 0)
	boom := errors.New("boom")
	f.Hook(func(c Call) Fault {
		if c.Op == "write" {
			return Fault{Err: boom, Short: 2}
		}
		return Fault{}
	})
	if n, err := file.WriteAt([]byte("hello"), 0); n != 2 || !errors.Is(err, boom) {
		t.Fatalf("write: %d, %v", n, err)
	}
	f.Hook(nil)
	if got := read(t, f, "d/a"); string(got) != "he" {
		t.Fatalf("got %q", got)
	}
}

func TestWhatASyncHasFailedForIsNotSyncedLaterUnlessItIsWrittenAgain(t *testing.T) {
	for _, again := range []bool{false, true} {
		f := New("d")
		file, _ := f.Create("d/a", 1000)
		write := func(s string, off int64) {
			t.Helper()
			if _, err := file.WriteAt([]byte(s), off); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(file.Sync(), vfs.SyncDir(f, "d")); err != nil {
			t.Fatal(err)
		}
		f.Hook(func(c Call) Fault {
			if c.Op == "sync" {
				return Fault{Err: syscall.EIO}
			}
			return Fault{}
		})
		write("lost", 0)
		if err := file.Sync(); !errors.Is(err, syscall.EIO) {
			t.Fatalf("sync: %v", err)
		}
		f.Hook(nil)
		write("kept", 600)
		if again {
			write("lost", 0)
		}
		if err := file.Sync(); err != nil {
			t.Fatal(err)
		}
		got := read(t, f.PowerCut(rand.New(rand.NewPCG(1, 1))), "d/a")
		if (string(got[:4]) == "lost") != again || string(got[600:604]) != "kept" {
			t.Errorf("written again: %v; got %q and %q", again, got[:4], got[600:604])
		}
	}
}

func TestADirectoryReplacesAnEmptyOneOnly(t *testing.T) {
	f := New("d")
	for _, dir := range []string{"d/a", "d/b", "d/c"} {
		if err := f.Mkdir(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Create("d/b/x", 1); err != nil {
		t.Fatal(err)
	}
	if err := f.Rename("d/a", "d/b"); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("rename: %v", err)
	}
	if err := f.Rename("d/b", "d/c"); err != nil || read(t, f, "d/c/x") == nil {
		t.Errorf("rename: %v", err)
	}
}
