package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
)

func TestWatchShowsNewJobsAndReservesNone(t *testing.T) {
	s := startServer(t)
	c := s.dial()
	c.put("t", "5", "0", "60", "old")
	table := startTool(t, "watch", "-a", s.addr, "t", "-i", "100ms")
	lines := startTool(t, "watch", "-a", s.addr, "t", "-i", "100ms", "-o", "ndjson")
	whole := startTool(t, "watch", "-a", s.addr, "t", "-i", "100ms", "-o", "json", "--state", "buried,delayed")
	// Each lists all states, and again, once it has read what is old.
	eventually(t, "all have begun", func() bool {
		return strings.Contains(table.out.String(), "BODY") && c.stat("stats", "current-connections") == "4"
	})
	for _, w := range []*tool{lines, whole} { // what each shows first tells that it has begun
		eventually(t, "a job is shown", func() bool {
			c.put("t", "9", "1000", "60", "probe")
			return strings.Contains(w.out.String(), "probe")
		})
	}
	c.put("t", "0", "0", "60", "first\x1b[31m")
	c.put("t", "7", "0", "60", "reserved")
	c.do("watch t")
	r := c.reply("reserve-with-timeout 0")
	c.put("t", "7", "0", "60", "\xff")
	for _, w := range []*tool{table, lines} {
		w.awaitOut("reserved")
	}
	lines.awaitOut("body-base64")
	table.awaitOut(`\xff`)
	if reserves := c.stat("stats-job "+r.Args[0], "reserves"); reserves != "1" {
		t.Errorf("%s reserves", reserves)
	}
	for _, w := range []*tool{table, lines, whole} {
		_ = w.cmd.Process.Signal(syscall.SIGINT)
		if status := w.wait(); status != 0 {
			t.Errorf("status %d", status)
		}
	}
	for _, w := range []*tool{table, lines, whole} {
		if out := w.out.String(); strings.Contains(out, "old") || strings.Count(out, "first") > 1 || strings.Contains(out, "\x1b") {
			t.Errorf("%s", out)
		}
	}
	if !strings.Contains(table.out.String(), `first\x1b[31m`) {
		t.Errorf("%s", table.out.String())
	}
	var all []map[string]any
	if err := json.Unmarshal([]byte(whole.out.String()), &all); err != nil || len(all) == 0 || all[0]["state"] != "delayed" || all[0]["body"] != "probe" {
		t.Errorf("%v: %v\n%s", err, all, whole.out.String())
	}
}

func TestWatchSaysWhatItCannotDo(t *testing.T) {
	stock := startStock(t)
	for want, args := range map[string]struct {
		args   string
		status int
	}{
		"list-jobs":          {"t", exitRefused},
		"asleep":             {"t --state asleep", exitUsage},
		"--interval":         {"t -i 1ms", exitUsage},
		"cannot be the name": {"t!", exitUsage},
	} {
		out, errs, status := trellis(t, append([]string{"watch", "-a", stock.addr}, strings.Fields(args.args)...)...)
		if status != args.status || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, want %d: %s%s", args.args, status, args.status, out, errs)
		}
	}
}

func TestWatchEndsWithItsServer(t *testing.T) {
	s := startServer(t)
	w := startTool(t, "watch", "-a", s.addr, "t", "-i", "100ms")
	w.awaitOut("BODY")
	s.kill()
	if status := w.wait(); status != exitUnreachable {
		t.Errorf("status %d", status)
	}
}
