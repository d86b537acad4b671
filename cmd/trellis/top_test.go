package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

func TestTopWithoutATerminalIsATable(t *testing.T) {
	onBothServers(t, func(t *testing.T, s *queueServer) {
		c := s.dial()
		c.put("mail", "5", "0", "60", "a")
		c.put("mail", "5", "1000", "60", "b")
		c.put("other", "5", "0", "60", "c")
		c.do("use default")
		out, errs, status := trellis(t, "top", "-a", s.addr, "-i", "100ms")
		if status != 0 || errs != "" {
			t.Fatalf("status %d: %s", status, errs)
		}
		// How long ago something was, and so how fast, is not the same each time.
		line := regexp.MustCompile(`(?m)^mail +1 +0 +1 +0 +[0-9.]+ +[0-9.]+ +([0-9]+ s|[0-9]+ m( [0-9]+ s)?|-) +- +(0\.0|-) +- +0 +0 +-$`)
		if !strings.HasPrefix(out, "TUBE ") || !line.MatchString(out) || strings.Count(out, "\n") != 4 {
			t.Errorf("%s", out)
		}
		if told := line.FindStringSubmatch(out); told != nil && (told[1] == "-" || told[3] == "-") != s.stock {
			t.Errorf("an age and what is busy: %q\n%s", told[1:], out)
		}

		out, errs, status = trellis(t, "top", "-a", s.addr, "-i", "100ms", "--once", "-o", "ndjson", "--sort", "tube", "--filter", "mai")
		var tube map[string]any
		if err := json.Unmarshal([]byte(out), &tube); err != nil || status != 0 {
			t.Fatalf("status %d, %v: %s%s", status, err, out, errs)
		}
		if tube["name"] != "mail" || tube["current-jobs-delayed"] != 1.0 || tube["rate-in"] != 0.0 || tube["limited-by"] != "none" {
			t.Errorf("%v", tube)
		}

		out, errs, status = trellis(t, "top", "-a", s.addr, "-i", "100ms", "--once", "--limit", "1")
		if status != 0 || strings.Count(out, "\n") != 2 || !strings.Contains(errs, "2 more are left out") {
			t.Errorf("status %d: %s%s", status, out, errs)
		}
	})
}

func TestMistakesOfTopAreExplained(t *testing.T) {
	s := startServer(t)
	for _, tt := range []struct {
		args   string
		status int
		want   string
	}{
		{"--sort size", exitUsage, "--sort"},
		{"--interval 1ms", exitUsage, "--interval"},
		{"--once --filter nothing -i 100ms", exitNothing, `"nothing"`},
		{"-a 127.0.0.1:1", exitUnreachable, "refused"},
	} {
		if out, errs, status := trellis(t, append([]string{"top", "-a", s.addr}, strings.Fields(tt.args)...)...); status != tt.status || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: status %d, want %d: %s%s", tt.args, status, tt.status, out, errs)
		}
	}
}
