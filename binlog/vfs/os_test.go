package vfs

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

func TestAllocatedBytesAreZeroAndCountAsTheFiles(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a")
	f, err := OS{}.Create(name, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := (OS{}).Create(name, 0); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second create: %v", err)
	}
	if err := f.Allocate(20_000); err != nil {
		t.Fatal(err)
	}
	if err := f.Allocate(5); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 20_000)
	if n, err := f.ReadAt(b, 0); n != len(b) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	for _, c := range b {
		if c != 0 {
			t.Fatal("not zero")
		}
	}
	if fi, err := os.Stat(name); err != nil || fi.Size() != 20_000 || fi.Sys().(*syscall.Stat_t).Blocks*512 < 20_000 {
		t.Errorf("%v, %v", fi, err)
	}
	if err := f.Truncate(100); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), SyncDir(OS{}, dir)); err != nil {
		t.Fatal(err)
	}
	if err := (OS{}).Mkdir(filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	es, err := OS{}.List(dir)
	if err != nil || len(es) != 2 || es[0] != (Entry{Name: "a", Size: 100}) || es[1].Name != "sub" || !es[1].Dir {
		t.Errorf("%+v, %v", es, err)
	}
}

func TestZerosAreWrittenWhereNothingElseAllocates(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := WriteZeros(f, 10, 3<<20); err != nil {
		t.Fatal(err)
	}
	if fi, err := f.Stat(); err != nil || fi.Size() != 3<<20+10 {
		t.Errorf("%v, %v", fi, err)
	}
}

// A process that holds the lock that its argument names until its input ends.
func TestMain(m *testing.M) {
	if name := os.Getenv("VFS_TEST_LOCK"); name != "" {
		if _, err := (OS{}).Lock(name); err != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString("locked\n")
		os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestALockTellsWhoHoldsIt(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "VFS_TEST_LOCK="+name)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("%q, %v", line, err)
	}
	var locked *LockedError
	if _, err := (OS{}).Lock(name); !errors.As(err, &locked) || locked.PID != cmd.Process.Pid {
		t.Errorf("process %d has it: %v", cmd.Process.Pid, err)
	}
	in.Close()
	cmd.Wait()

	l, err := OS{}.Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (OS{}).Lock(name); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("this process has it: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = (OS{}).Lock(name); err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestBootStaysTheSame(t *testing.T) {
	if a, b := (OS{}).Boot(), (OS{}).Boot(); a != b {
		t.Errorf("%x and %x", a, b)
	}
}
