package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/options"
)

func TestCheckConfigFindsEveryMistakeAndOpensNothing(t *testing.T) {
	t.Parallel()
	files, dir := newCertFiles(t), t.TempDir()
	auth := authFile(t, tokenLine("a", "a", "all", "*"))
	web := filepath.Join(dir, "web.yml")
	writeAuthFile(t, web, webConfig)
	file := filepath.Join(dir, "file")
	no(t, os.WriteFile(file, []byte("oops\n"), 0o600))
	running := start(t, "-b", dir) // whose port and directory are not asked for
	good := []string{
		"--check-config", "-l", running.addrs[0].String(), "-b", dir, "--tls-listen=unix:s", "--tls-cert=" + files.cert, "--tls-key=" + files.key,
		"--auth-file=" + auth, "--http=127.0.0.1:0", "--web-config-file=" + web, "--console=write",
	}
	missing := dir + "/missing"
	member := []string{"--node=n1=192.0.2.1:1", "--cluster-cert=" + files.cert, "--cluster-key=" + files.key, "--cluster-ca"}
	for _, tt := range []struct {
		args []string
		code int
		want []string // in the lines of standard error
	}{
		{nil, 0, nil},
		{append(member, files.caFile), 0, nil},
		{[]string{"--max-memory=auto"}, 0, nil},
		{[]string{"-q"}, exitUsage, []string{"unknown flag: -q"}},
		{[]string{"--auth-file=" + file}, exitUsage, []string{file + ":1: "}},
		{[]string{"--tls-key=" + file, "--auth-file=" + missing}, exitUsage, []string{file + ": there is no private key", "--auth-file: open " + missing}},
		{[]string{"--web-config-file=" + file}, exitUsage, []string{"--web-config-file: "}},
		{append(member, file), exitUsage, []string{file + " holds no certificate"}},
		{[]string{"-b", missing, "--auth-file=" + file}, exitBinlog, []string{"-b: stat " + missing, file + ":1: "}},
		{[]string{"--audit-file=" + dir + "/audit"}, 0, nil},
		{[]string{"--audit-file=" + dir}, exitUsage, []string{"--audit-file: " + dir + " cannot be written"}},
		{[]string{"--audit-file=" + missing + "/audit"}, exitUsage, []string{"--audit-file: " + missing + "/audit cannot be written"}},
		{[]string{"-b", file}, exitBinlog, []string{file + " is no directory"}},
		{[]string{"-l", "a:b:c", "-l", "unix:/" + strings.Repeat("x", 200), "--tls-listen=:none"}, exitListen, []string{"a:b:c: not an address", "too long", ":none: not an address"}},
		{[]string{"-l", "127.0.0.1:no-such-service"}, exitListen, []string{`"no-such-service"`}},
		{[]string{"-u", "no-such-user"}, exitUnknownUser, []string{`"no-such-user"`}},
	} {
		p := launch(t, append(good, tt.args...)...)
		if code := p.wait(); code != tt.code {
			t.Errorf("%q: exit code %d; want %d", tt.args, code, tt.code)
		}
		log := p.log()
		if len(log) != len(tt.want) || (p.stdout.Len() > 0) != (tt.code == 0) {
			t.Errorf("%q: said %q, %q", tt.args, p.stdout.String(), log)
			continue
		}
		for i, want := range tt.want {
			if !strings.HasPrefix(log[i], "trellisd: ") || !strings.Contains(log[i], want) {
				t.Errorf("%q: said %q, which does not have %q", tt.args, log[i], want)
			}
		}
	}
	c := running.dial(0)
	c.send("use x")
	c.want("USING x")
}

func TestCheckConfigReadsFilesAsTheUserThatTheServerBecomes(t *testing.T) {
	t.Parallel()
	lookupNobody(t)
	auth := authFile(t, tokenLine("a", "a", "all", "*")) // for root alone
	p := launch(t, "--check-config", "-u", "nobody", "--auth-file="+auth)
	code, log := p.wait(), p.log()
	if code != exitUsage || len(log) != 1 || !strings.Contains(log[0], "permission denied") {
		t.Errorf("exit code %d, %q", code, log)
	}
}

func TestAutoMemoryIsFourFifthsOfWhatTheProcessMayTake(t *testing.T) {
	t.Parallel()
	opt := &options.Options{MaxMemory: options.AutoMemory}
	if err := fixMemory(opt, func() int64 { return 1000 << 20 }); err != nil || opt.MaxMemory != 800<<20 {
		t.Errorf("%d, %v", opt.MaxMemory, err)
	}
	opt.MaxMemory = 7
	if err := fixMemory(opt, nil); err != nil || opt.MaxMemory != 7 {
		t.Errorf("a number of bytes: %d, %v", opt.MaxMemory, err)
	}
	opt.MaxMemory = options.AutoMemory
	if err := fixMemory(opt, func() int64 { return 0 }); err == nil || !strings.Contains(err.Error(), "give a number") {
		t.Errorf("where nothing is known: %v", err)
	}
	if runtime.GOOS != "linux" {
		return
	}
	_, url := monitored(t, "--max-memory=auto")
	value := func(name string) (v float64) {
		_, rest, _ := strings.Cut(scrape(t, url), "\n"+name+" ")
		_, err := fmt.Sscan(rest, &v)
		no(t, err)
		return v
	}
	if got, of := value("beanstalkd_job_memory_limit_bytes"), value("beanstalkd_process_memory_limit_bytes"); got < of*0.79 || got > of*0.81 {
		t.Errorf("%v of %v", got, of)
	}
}
