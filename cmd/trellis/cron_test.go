package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func cronFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "crontab")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSeveralCronsPutOneJobForEachTimeThoughOneIsKilled(t *testing.T) {
	s := startServer(t)
	c := s.dial()
	file := cronFile(t, "* * * * * t --ttr 3600 --name m x\n")
	start := func() *tool { return startTool(t, "cron", "-a", s.addr, file) }
	killed := start()
	killed.awaitErr("job 1 put into tube t")
	others := []*tool{start(), start()}
	_ = killed.cmd.Process.Kill()
	killed.wait()
	for _, p := range others {
		eventually(t, "it has put all of the last hour", func() bool {
			log := p.errs.String()
			return strings.Count(log, " put into ")+strings.Count(log, " was there") >= 60
		})
	}
	// All jobs are told of by those that were not killed, but for the first one perhaps. They may go on meanwhile: a
	// minute may begin.
	eventually(t, "there are as many jobs as times", func() bool {
		jobs := map[string]string{} // by time
		for _, p := range append(others, killed) {
			for line := range strings.Lines(p.errs.String()) {
				at, rest, told := strings.Cut(strings.TrimPrefix(line, "trellis: line 1, "), ": job ")
				if !told || !strings.HasSuffix(line, "\n") {
					continue
				}
				id, _, _ := strings.Cut(rest, " ")
				if other, ok := jobs[at]; ok && other != id {
					t.Fatalf("for %s there are jobs %s and %s", at, other, id)
				}
				jobs[at] = id
			}
		}
		return len(jobs) >= 60 && c.stat("stats-tube t", "total-jobs") == strconv.Itoa(len(jobs))
	})
	for _, p := range others {
		p.stop()
	}
}

func TestCronNeedsAServerWithUniqueKeys(t *testing.T) {
	file := cronFile(t, "0 0 1 1 * t x\n")
	if _, errs, status := trellisIn(t, nil, "cron", "-a", startServer(t, "--no-extensions").addr, file); status != 4 || !strings.Contains(errs, "idp") {
		t.Errorf("status %d: %s", status, errs)
	}
	if _, errs, status := trellisIn(t, nil, "cron", "-a", "unix:"+filepath.Join(t.TempDir(), "nobody"), file); status != 3 {
		t.Errorf("status %d: %s", status, errs)
	}
}

func TestCronChecksItsFile(t *testing.T) {
	out, errs, status := trellis(t, "cron", "--check", cronFile(t, "# one\nTZ=Europe/Berlin\n0 0 1 1 * t x\n"))
	if status != 0 || !strings.HasPrefix(out, "line 3: tube t, next at 20") || !strings.HasSuffix(out, "-01-01T00:00:00+01:00\n") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	file := cronFile(t, "0 0 1 1 * t x\n0 24 * * * t\n* * *\n")
	for _, args := range [][]string{{"cron", "--check", file}, {"cron", file}} {
		out, errs, status := trellis(t, args...)
		if status != 2 || out != "" || !strings.Contains(errs, file+`:2: hour "24"`) || !strings.Contains(errs, file+":3: an entry is") || !strings.Contains(errs, "2 mistakes") {
			t.Errorf("status %d: %s%s", status, out, errs)
		}
	}
	if _, errs, status := trellis(t, "cron", filepath.Join(t.TempDir(), "nosuch")); status != 2 || !strings.Contains(errs, "nosuch") {
		t.Errorf("status %d: %s", status, errs)
	}
}
