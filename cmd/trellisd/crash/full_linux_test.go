//go:build proof

package crash

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trellis/cmd/trellisd/internal/servertest"
)

// On a full disk new jobs are refused, the old ones can be worked on to the end,
// and when there is space again, new ones are taken again.
func TestAFullDiskIsOnlyFullAsLongAsItIs(t *testing.T) {
	t.Parallel()
	for _, sync := range []string{"-f50", "-f0", "-F"} {
		t.Run(sync, func(t *testing.T) {
			t.Parallel()
			disk := servertest.SmallDisk(t, 1<<20)
			ballast := filepath.Join(disk, "ballast")
			if err := os.WriteFile(ballast, make([]byte, 700<<10), 0o600); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(disk, "log")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			args := []string{"-b", dir, "-s16384", sync}
			s := servertest.Start(t, args...)
			c := s.Dial(0)
			body := strings.Repeat("x", 500)
			jobs := fill(c, body)
			if jobs < 100 {
				t.Fatalf("the disk was full with %d jobs", jobs)
			}
			// What was refused has not happened.
			if got := servertest.Stats(c); got["current-jobs-ready"] != fmt.Sprint(jobs) || got["total-jobs"] != fmt.Sprint(jobs) {
				t.Errorf("%d jobs were accepted: %v", jobs, got)
			}
			// Every job can be deleted, also when what a release or a bury needs is not there.
			half := jobs / 2
			for id := 1; id <= half; id++ {
				c.Send(fmt.Sprintf("reserve-job %d", id))
				c.Want(fmt.Sprintf("RESERVED %d 500", id), body)
				if id%2 == 0 {
					c.Send(fmt.Sprintf("bury %d 1", id))
					line, err := c.In.ReadString('\n')
					if err != nil || line != "BURIED\r\n" && line != "OUT_OF_MEMORY\r\n" {
						t.Fatalf("bury: %q, %v", line, err)
					}
				}
				c.Send(fmt.Sprintf("delete %d", id))
				c.Want("DELETED")
			}
			untilAccepted(c) // what the deleted jobs had
			fill(c, body)
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			untilAccepted(c)
			count := servertest.Stats(c)["current-jobs-ready"]
			s.Signal(syscall.SIGKILL)
			s.Wait()

			again := servertest.Start(t, args...)
			c = again.Dial(0)
			if got := servertest.Stats(c)["current-jobs-ready"]; got != count {
				t.Errorf("there are %s jobs, and were %s", got, count)
			}
			c.Send(fmt.Sprintf("peek %d", half), fmt.Sprintf("peek %d", jobs))
			c.Want("NOT_FOUND", fmt.Sprintf("FOUND %d 500", jobs), body)
		})
	}
}

// What was accepted and does not fit on a disk that breaks its promise of space is
// acknowledged when it does.
func TestRepliesWaitForSpaceThatWasPromised(t *testing.T) {
	t.Parallel()
	for _, sync := range []string{"-f50", "-f0", "-F"} {
		dir := t.TempDir()
		s := servertest.Start(t, "-b", dir, sync)
		limit := func(bytes uint64) {
			t.Helper()
			l := unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}
			if err := unix.Prlimit(s.Cmd.Process.Pid, unix.RLIMIT_FSIZE, &l, nil); err != nil {
				t.Skip("another process's limits cannot be changed here: ", err)
			}
		}
		a, b := s.Dial(0), s.Dial(0)
		a.Send("put 1 0 60 1", "x")
		a.Want("INSERTED 1")
		limit(0)
		a.Send("put 2 0 60 1", "y")
		s.WaitText("no space to write what was accepted")
		b.Send("put 3 0 60 1", "z", "list-tube-used")
		b.Want("OUT_OF_MEMORY", "USING default")
		limit(unix.RLIM_INFINITY)
		a.Want("INSERTED 2")
		untilAccepted(b)
		s.Signal(syscall.SIGKILL)
		s.Wait()
		c := servertest.Start(t, "-b", dir, sync).Dial(0)
		c.Send("peek 1", "peek 2")
		c.Want("FOUND 1 1", "x", "FOUND 2 1", "y")
	}
}

// A stop that cannot write what was accepted is not one that went well.
func TestAStopThatCannotWriteTheEndOfTheLogFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := servertest.Start(t, "-b", dir)
	c := s.Dial(0)
	c.Send("put 1 0 60 1", "x")
	c.Want("INSERTED 1")
	l := unix.Rlimit{Cur: 0, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(s.Cmd.Process.Pid, unix.RLIMIT_FSIZE, &l, nil); err != nil {
		t.Skip("another process's limits cannot be changed here: ", err)
	}
	c.Send("put 2 0 60 1", "y")
	s.WaitText("no space to write what was accepted")
	if err := c.Conn.Close(); err != nil {
		t.Fatal(err)
	}
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != servertest.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	s.WaitText("closing the binlog in " + dir)
}

// lazyDisk mounts a file system on a disk that has less space than it says. It
// returns what takes all that is left, and what gives it back and returns where
// the file system then is.
func lazyDisk(t *testing.T) (dir string, takeSpace, giveSpace func()) {
	t.Helper()
	backing := servertest.SmallDisk(t, 3<<20)
	image, ballast := filepath.Join(backing, "image"), filepath.Join(backing, "ballast")
	dir = t.TempDir()
	run := func(name string, args ...string) error {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", name, err, out)
		}
		return nil
	}
	mount := func() error { return run("mount", "-o", "loop", image, dir) }
	err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 16<<20))
	if err == nil {
		err = run("mkfs.ext2", "-q", image)
	}
	if err == nil {
		err = mount()
	}
	if err != nil {
		t.Skip("a file cannot be mounted here: ", err)
	}
	t.Cleanup(func() {
		if err := run("umount", dir); err != nil {
			t.Error(err)
		}
	})
	takeSpace = func() {
		f, err := os.Create(ballast)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
	}
	giveSpace = func() {
		// What the kernel still has in memory is not what is on the disk.
		if err := errors.Join(os.Remove(ballast), run("umount", dir), mount()); err != nil {
			t.Fatal(err)
		}
	}
	return dir, takeSpace, giveSpace
}

// A sync that fails ends the process, and the disk has what was acknowledged.
func TestAFailedSyncEndsTheProcess(t *testing.T) {
	t.Parallel()
	dir, takeSpace, giveSpace := lazyDisk(t)
	args := []string{"-b", dir, "-f0", "-s65536"}
	s := servertest.Start(t, args...)
	c := s.Dial(0)
	body := strings.Repeat("x", 1000)
	var ids []int
	takeSpace()
	for {
		c.Send("put 1 0 60 1000", body)
		line, err := c.In.ReadString('\n')
		if line == "" && errors.Is(err, io.EOF) {
			break // what became of the last one is unknown
		}
		var id int
		if _, wrong := fmt.Sscanf(line, "INSERTED %d", &id); wrong == nil {
			ids = append(ids, id)
		} else if err != nil || line != "OUT_OF_MEMORY\r\n" { // there was no further segment for a moment
			t.Fatalf("%q, %v", line, err)
		}
	}
	if code := s.Wait(); code != servertest.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	s.WaitText("the binlog in " + dir + " has failed: ")
	giveSpace()

	c = servertest.Start(t, args...).Dial(0)
	for _, id := range ids {
		c.Send(fmt.Sprintf("peek %d", id))
		c.Want(fmt.Sprintf("FOUND %d 1000", id), body)
	}
}

// fill puts jobs until one is refused.
func fill(c *servertest.Client, body string) (jobs int) {
	c.T.Helper()
	for ; ; jobs++ {
		if !put(c, body) {
			return jobs
		}
	}
}

func put(c *servertest.Client, body string) bool {
	c.T.Helper()
	c.Send(fmt.Sprintf("put 1 0 1000 %d", len(body)), body)
	line, err := c.In.ReadString('\n')
	if err != nil || line != "OUT_OF_MEMORY\r\n" && !strings.HasPrefix(line, "INSERTED ") {
		c.T.Fatalf("put: %q, %v", line, err)
	}
	return line != "OUT_OF_MEMORY\r\n"
}

func untilAccepted(c *servertest.Client) {
	c.T.Helper()
	for began := time.Now(); !put(c, "y"); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > servertest.Patience {
			c.T.Fatal("there is space, and the server does not take it")
		}
	}
}
