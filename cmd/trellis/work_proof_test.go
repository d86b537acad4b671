//go:build proof

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestWorkReleasesWithBackOffAndBuriesAfterItsAttempts(t *testing.T) {
	t.Parallel() // it takes the time of the back-off
	onBothServers(t, func(t *testing.T, s *queueServer) {
		c := s.dial()
		c.put("t", "7", "0", "60", "a")
		w := startWork(t, s, `echo attempt $TRELLIS_JOB_ATTEMPT; exit 3`, "--attempts", "3", "--backoff", "1s")
		eventually(t, "the job is buried", func() bool { return c.stat("stats-job 1", "state") == "buried" })
		w.awaitOut("attempt 3\n")
		if got := w.out.String(); got != "attempt 1\nattempt 2\nattempt 3\n" {
			t.Errorf("%q", got)
		}
		if releases, pri := c.stat("stats-job 1", "releases"), c.stat("stats-job 1", "pri"); releases != "2" || pri != "7" {
			t.Errorf("%s releases, priority %s", releases, pri)
		}
		w.awaitErr("job 1: exit status 3")
		w.awaitErr("job 1: buried after 3 attempts")

		c.do("kick-job 1")
		eventually(t, "three more attempts", func() bool { return c.stat("stats-job 1", "buries") == "2" })
		w.stop()
		if got := strings.Count(w.out.String(), "attempt 1\n"); got != 2 {
			t.Errorf("%d first attempts: %q", got, w.out.String())
		}
	})
}

func TestWorkKeepsAJobForLongerThanItsTimeToRun(t *testing.T) {
	t.Parallel() // it takes the time of three touches
	onBothServers(t, func(t *testing.T, s *queueServer) {
		c := s.dial()
		kept := func() bool {
			c.put("t", "0", "0", "8", "a")
			number := func(key string) (n int) {
				fmt.Sscan(c.stat("stats", key), &n)
				return n
			}
			touches, deletes, timeouts := number("cmd-touch"), number("cmd-delete"), number("job-timeouts")
			end := filepath.Join(t.TempDir(), "end")
			w := startWork(t, s, `until [ -e `+end+` ]; do sleep 0.05; done`)
			eventually(t, "three touches", func() bool { return number("cmd-touch") >= touches+3 })
			if err := os.WriteFile(end, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the job is deleted", func() bool { return number("cmd-delete") > deletes })
			w.stop()
			return number("job-timeouts") == timeouts
		}
		// The time to run passes where a machine stands still for half of it.
		for tries := 1; !kept(); tries++ {
			if tries == 3 {
				t.Fatal("the job has timed out each time")
			}
		}
	})
}

func TestWorkStopsTheCommandOfAJobThatIsDeleted(t *testing.T) {
	t.Parallel() // it takes the time of a touch
	s := startServer(t)
	c := s.dial()
	c.put("t", "0", "0", "8", "a")
	file := filepath.Join(t.TempDir(), "pids")
	w := startWork(t, s, `echo $$ >>`+file+`; sleep 1000 & echo $! >>`+file+`; wait`)
	eventually(t, "two processes", func() bool { return len(pids(t, file)) >= 2 })
	c.do("flush-tube t")
	w.awaitErr("job 1: given up")
	for _, pid := range pids(t, file) {
		eventually(t, "the process ends", func() bool { return !alive(pid) })
	}
	c.put("t", "0", "0", "60", "b") // it goes on
	eventually(t, "the next job", func() bool { return len(pids(t, file)) >= 4 })
	_ = w.cmd.Process.Kill()
}

func TestStoppedWorkGivesBackWhatDoesNotEndInItsGrace(t *testing.T) {
	t.Parallel() // it waits for what is killed
	onBothServers(t, func(t *testing.T, s *queueServer) {
		c := s.dial()
		c.put("t", "9", "0", "60", "a")
		file := filepath.Join(t.TempDir(), "pids")
		w := startWork(t, s, `trap '' TERM; echo $$ >>`+file+`; sleep 1000 & echo $! >>`+file+`; wait; wait`, "--grace", "1ms")
		eventually(t, "two processes", func() bool { return len(pids(t, file)) == 2 })
		w.stop()
		for _, pid := range pids(t, file) {
			eventually(t, "the process ends", func() bool { return !alive(pid) })
		}
		eventually(t, "the job is ready", func() bool { return c.stat("stats-job 1", "state") == "ready" })
		if pri, releases := c.stat("stats-job 1", "pri"), c.stat("stats-job 1", "releases"); pri != "9" || releases != "0" {
			t.Errorf("priority %s, %s releases", pri, releases)
		}
		w.awaitErr("1 given up")
	})
}

func TestWorkDoesNotWaitForWhatACommandLeavesBehind(t *testing.T) {
	t.Parallel() // it waits for what is killed
	s := startServer(t)
	c := s.dial()
	c.put("t", "0", "0", "60", "a")
	file := filepath.Join(t.TempDir(), "pids")
	w := startWork(t, s, `sleep 1000 & echo $! >`+file, "--prefix")
	eventually(t, "the job is deleted", func() bool { return c.stat("stats", "cmd-delete") == "1" })
	w.stop()
	for _, pid := range pids(t, file) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
