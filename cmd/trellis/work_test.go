package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// startWork starts `trellis work` on the tube t with a shell command.
func startWork(t *testing.T, s *queueServer, shell string, args ...string) *tool {
	t.Helper()
	return startTool(t, slices.Concat([]string{"work", "-a", s.addr, "t"}, args, []string{"--", "sh", "-c", shell})...)
}

// stop ends the work in order.
func (p *tool) stop() {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if status := p.wait(); status != 0 {
		p.t.Errorf("status %d after SIGTERM\n%s", status, p.errs.String())
	}
}

// pids are the processes whose numbers a command has written to a file. A line that is not complete is not read.
func pids(t *testing.T, file string) (all []int) {
	t.Helper()
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if pid, err := strconv.Atoi(strings.TrimSuffix(line, "\n")); err == nil && strings.HasSuffix(line, "\n") {
			all = append(all, pid)
		}
	}
	return all
}

// alive reports whether a process runs. One that has exited may not have been reaped, if its parent is gone too.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if os.IsNotExist(err) {
		_, err := os.Stat("/proc/self/stat")
		return err != nil // there is no such file system here
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func TestWorkGivesEachJobToACommandAndDeletesIt(t *testing.T) {
	onBothServers(t, func(t *testing.T, s *queueServer) {
		c := s.dial()
		var want []string
		for i := range 20 {
			c.put("t", "7", "0", "60", fmt.Sprint("body ", i))
			want = append(want, fmt.Sprintf("%d t 7 60 1 1 body %d", i+1, i))
		}
		w := startWork(t, s, `echo "$TRELLIS_JOB_ID $TRELLIS_JOB_TUBE $TRELLIS_JOB_PRI $TRELLIS_JOB_TTR $TRELLIS_JOB_RESERVES $TRELLIS_JOB_ATTEMPT $(cat)"`, "-j", "3")
		eventually(t, "all jobs are deleted", func() bool { return c.stat("stats", "cmd-delete") == "20" })
		w.stop()
		slices.Sort(want)
		if got := sortedLines(w.out.String()); !slices.Equal(got, want) {
			t.Errorf("%q\nwant\n%q", got, want)
		}
		w.awaitErr("20 jobs deleted, 0 released, 0 buried, 0 given up")
	})
}

// Four commands run at once: three of the one tube for each of the other.
func TestWorkOnSeveralTubesFollowsTheirWeights(t *testing.T) {
	s := startServer(t)
	c := s.dial()
	for range 4 {
		c.put("a", "9", "0", "600", "x")
		c.put("b", "0", "0", "600", "x")
	}
	end := filepath.Join(t.TempDir(), "end")
	w := startTool(t, "work", "-a", s.addr, "--tubes", "a=3,b=1", "--mode", "weighted-fair", "-j", "4", "--",
		"sh", "-c", `until [ -e `+end+` ]; do sleep 0.05; done; echo $TRELLIS_JOB_TUBE`)
	eventually(t, "four jobs are reserved", func() bool { return c.stat("stats", "current-jobs-reserved") == "4" })
	if a, b := c.stat("stats-tube a", "current-jobs-reserved"), c.stat("stats-tube b", "current-jobs-reserved"); a != "3" || b != "1" {
		t.Errorf("%s of a, %s of b", a, b)
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all jobs are deleted", func() bool { return c.stat("stats", "cmd-delete") == "8" })
	w.stop()
	if got := sortedLines(w.out.String()); !slices.Equal(got, []string{"a", "a", "a", "a", "b", "b", "b", "b"}) {
		t.Errorf("%q", got)
	}
}

func TestWorkRefusesWhatCannotBeMeant(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"work", "give a tube, or --tubes, and a command behind --"},
		{"work t", "give a tube, or --tubes, and a command behind --"},
		{"work --tubes a t -- true", "give a tube, or --tubes, and a command behind --"},
		{"work --tubes a --", "give a tube, or --tubes, and a command behind --"},
		{"work --tubes a=3 -- true", "a=3: a weight needs --mode weighted or weighted-fair"},
		{"work --tubes a=3 --mode fifo -- true", "a=3: a weight needs --mode weighted or weighted-fair"},
		{"work --tubes a=0 --mode weighted -- true", "a=0: a weight is a number from 1 to 9999"},
		{"work --tubes a,b=10000 --mode weighted -- true", "b=10000: a weight is a number from 1 to 9999"},
		{"work --tubes a,-b -- true", "-b"},
		{"work t --mode fair -- true", `--mode is fifo, weighted or weighted-fair, not "fair"`},
	} {
		if _, errs, status := trellisIn(t, nil, strings.Fields(tt.args)...); status != 2 || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: status %d: %s", tt.args, status, errs)
		}
	}
}

func TestWorkDelaysAFailedJobTwiceAsLongEachTime(t *testing.T) {
	s := startServer(t)
	c := s.dial()
	c.put("t", "0", "0", "60", "a")
	w := startWork(t, s, "exit 1", "--backoff", "1000s", "--max-backoff", "3000s", "--attempts", "0")
	for _, want := range []string{"1000", "2000", "3000", "3000"} {
		eventually(t, "the delay is "+want, func() bool {
			return c.stat("stats-job 1", "state") == "delayed" && c.stat("stats-job 1", "delay") == want
		})
		if want == "3000" {
			break
		}
		c.do("kick-job 1")
	}
	w.stop()
}

func TestWorkDoesNotMindACommandThatLeavesTheBodyUnread(t *testing.T) {
	onBothServers(t, func(t *testing.T, s *queueServer) {
		c := s.dial()
		c.put("t", "0", "0", "60", strings.Repeat("x", 65535))
		w := startWork(t, s, "exec <&-; exit 0")
		eventually(t, "the job is deleted", func() bool { return c.stat("stats", "cmd-delete") == "1" })
		w.stop()
	})
}

func TestStoppedWorkLetsCommandsEndInTheirGrace(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			onBothServers(t, func(t *testing.T, s *queueServer) {
				c := s.dial()
				c.put("t", "0", "0", "60", "a")
				c.put("t", "0", "0", "60", "b")
				end := filepath.Join(t.TempDir(), "end")
				w := startWork(t, s, `echo begun; until [ -e `+end+` ]; do sleep 0.05; done`, "--grace", "1h")
				w.awaitOut("begun")
				_ = w.cmd.Process.Signal(sig)
				w.awaitErr("stopping")
				if err := os.WriteFile(end, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if status := w.wait(); status != 0 {
					t.Errorf("status %d", status)
				}
				if deleted := c.stat("stats", "cmd-delete"); deleted != "1" || w.out.String() != "begun\n" {
					t.Errorf("%s jobs deleted; commands wrote %q", deleted, w.out.String())
				}
			})
		})
	}
}

func TestStoppedWorkBeginsNoJobs(t *testing.T) {
	s := startServer(t)
	c := s.dial()
	c.put("t", "0", "0", "60", "a")
	end := filepath.Join(t.TempDir(), "end")
	w := startWork(t, s, `echo begun; until [ -e `+end+` ]; do sleep 0.05; done`, "--grace", "1h", "-j", "2")
	w.awaitOut("begun")
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	w.awaitErr("stopping")
	c.put("t", "0", "0", "60", "b") // while a slot may still be waiting at the server
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.wait()
	eventually(t, "the second job is ready", func() bool { return c.stat("stats-job 2", "state") == "ready" })
	if got := w.out.String(); got != "begun\n" {
		t.Errorf("%q", got)
	}
}

func TestCommandsDoNotOutliveWorkThatIsKilled(t *testing.T) {
	onBothServers(t, func(t *testing.T, s *queueServer) {
		c := s.dial()
		c.put("t", "0", "0", "2", "a")
		file := filepath.Join(t.TempDir(), "pids")
		// The shell's child is what only the second process of the worker can reach.
		w := startWork(t, s, `echo $$ >>`+file+`; sleep 1000 & echo $! >>`+file+`; wait`)
		eventually(t, "two processes", func() bool { return len(pids(t, file)) >= 2 })
		// The worker touches the job once it has told its second process of the command.
		eventually(t, "a touch", func() bool { return c.stat("stats", "cmd-touch") != "0" })
		_ = w.cmd.Process.Kill()
		for _, pid := range pids(t, file) {
			eventually(t, "the process ends", func() bool { return !alive(pid) })
		}
		eventually(t, "the job is ready", func() bool { return c.stat("stats-job 1", "state") == "ready" })
	})
}

func TestWorkTakesAKilledCommandForAFailedAttempt(t *testing.T) {
	onBothServers(t, func(t *testing.T, s *queueServer) {
		c := s.dial()
		c.put("t", "0", "0", "60", "a")
		file := filepath.Join(t.TempDir(), "pids")
		w := startWork(t, s, `echo $$ >>`+file+`; exec sleep 1000`, "--attempts", "1")
		eventually(t, "a process", func() bool { return len(pids(t, file)) == 1 })
		if err := syscall.Kill(pids(t, file)[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the job is buried", func() bool { return c.stat("stats-job 1", "state") == "buried" })
		w.awaitErr("job 1: signal: killed")
		w.stop()
	})
}

func TestWorkGoesOnWithAServerThatWasRestarted(t *testing.T) {
	onBothServers(t, func(t *testing.T, s *queueServer) {
		s.kill()
		s.argv = append(s.argv, "-b", t.TempDir())
		s.start()
		c := s.dial()
		c.put("t", "0", "0", "60", "a")
		dir := t.TempDir()
		file, end := filepath.Join(dir, "pids"), filepath.Join(dir, "end")
		w := startWork(t, s, `echo $$ >>`+file+`; until [ -e `+end+` ]; do sleep 0.05; done`, "-j", "2")
		eventually(t, "a process", func() bool { return len(pids(t, file)) == 1 })
		s.kill()
		w.awaitErr("job 1: given up")
		eventually(t, "the first process ends", func() bool { return !alive(pids(t, file)[0]) })
		s.start()
		eventually(t, "a second process", func() bool { return len(pids(t, file)) == 2 })
		if err := os.WriteFile(end, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		c = s.dial()
		eventually(t, "the job is deleted", func() bool { return c.stat("stats", "cmd-delete") == "1" })
		w.stop()
	})
}

func TestWorkPrefixesLinesWithTheirJob(t *testing.T) {
	s := startServer(t)
	c := s.dial()
	c.put("t", "0", "0", "60", "a")
	c.put("t", "0", "0", "60", "b")
	w := startWork(t, s, `cat; echo; printf end; echo bad >&2`, "--prefix")
	eventually(t, "both jobs are deleted", func() bool { return c.stat("stats", "cmd-delete") == "2" })
	w.stop()
	if got := w.out.String(); got != "1: a\n1: end\n2: b\n2: end\n" {
		t.Errorf("%q", got)
	}
	w.awaitErr("1: bad\n")
}

func TestWorkEndsWhenItsCommandCannotBeStarted(t *testing.T) {
	s := startServer(t)
	c := s.dial()
	c.put("t", "0", "0", "60", "a")
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/nonexistent\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, errs, status := trellisIn(t, nil, "work", "-a", s.addr, "t", "--", program); status == 0 || !strings.Contains(errs, program) {
		t.Errorf("status %d: %s", status, errs)
	}
	eventually(t, "the job is ready", func() bool { return c.stat("stats-job 1", "state") == "ready" })
	if n := c.stat("stats-job 1", "releases"); n != "0" {
		t.Errorf("%s releases", n)
	}
}

func TestMistakesOfWorkAreExplained(t *testing.T) {
	for want, args := range map[string]string{
		"a command behind --": "work t",
		"no-such-program":     "work t -- no-such-program",
		"at least 1":          "work t -j 0 -- true",
		"cannot be the name":  "work t! -- true",
		"connection refused":  "work -a 127.0.0.1:1 t -- true",
	} {
		wantStatus := exitUsage
		if strings.Contains(want, "refused") {
			wantStatus = exitUnreachable
		}
		if out, errs, status := trellis(t, strings.Fields(args)...); status != wantStatus || !strings.Contains(errs, want) {
			t.Errorf("trellis %s: status %d, want %q\n%s%s", args, status, want, out, errs)
		}
	}
}
