package process

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

func TestCheckConfigFindsEveryMistakeAndOpensNothing(t *testing.T) {
	t.Parallel()
	files, dir := servertest.NewCertFiles(t), t.TempDir()
	auth := servertest.AuthFile(t, servertest.TokenLine("a", "a", "all", "*"))
	web := filepath.Join(dir, "web.yml")
	servertest.WriteAuthFile(t, web, webConfig)
	file := filepath.Join(dir, "file")
	servertest.NoError(t, os.WriteFile(file, []byte("oops\n"), 0o600))
	running := servertest.Start(t, "-b", dir) // whose port and directory are not asked for
	good := []string{
		"--check-config", "-l", running.Addrs[0].String(), "-b", dir, "--tls-listen=unix:s", "--tls-cert=" + files.Cert, "--tls-key=" + files.Key,
		"--auth-file=" + auth, "--http=127.0.0.1:0", "--web-config-file=" + web, "--console=write",
	}
	missing := dir + "/missing"
	member := []string{"--node=n1=192.0.2.1:1", "--cluster-cert=" + files.Cert, "--cluster-key=" + files.Key, "--cluster-ca"}
	for _, tt := range []struct {
		args []string
		code int
		want []string // in the lines of standard error
	}{
		{nil, 0, nil},
		{append(member, files.CAFile), 0, nil},
		{[]string{"--max-memory=auto"}, 0, nil},
		{[]string{"-q"}, servertest.ExitUsage, []string{"unknown flag: -q"}},
		{[]string{"--auth-file=" + file}, servertest.ExitUsage, []string{file + ":1: "}},
		{[]string{"--tls-key=" + file, "--auth-file=" + missing}, servertest.ExitUsage, []string{file + ": there is no private key", "--auth-file: open " + missing}},
		{[]string{"--web-config-file=" + file}, servertest.ExitUsage, []string{"--web-config-file: "}},
		{append(member, file), servertest.ExitUsage, []string{file + " holds no certificate"}},
		{[]string{"-b", missing, "--auth-file=" + file}, servertest.ExitBinlog, []string{"-b: stat " + missing, file + ":1: "}},
		{[]string{"--audit-file=" + dir + "/audit"}, 0, nil},
		{[]string{"--audit-file=" + dir}, servertest.ExitUsage, []string{"--audit-file: " + dir + " cannot be written"}},
		{[]string{"--audit-file=" + missing + "/audit"}, servertest.ExitUsage, []string{"--audit-file: " + missing + "/audit cannot be written"}},
		{[]string{"-b", file}, servertest.ExitBinlog, []string{file + " is no directory"}},
		{[]string{"-l", "a:b:c", "-l", "unix:/" + strings.Repeat("x", 200), "--tls-listen=:none"}, servertest.ExitListen, []string{"a:b:c: not an address", "too long", ":none: not an address"}},
		{[]string{"-l", "127.0.0.1:no-such-service"}, servertest.ExitListen, []string{`"no-such-service"`}},
		{[]string{"-u", "no-such-user"}, servertest.ExitUnknownUser, []string{`"no-such-user"`}},
	} {
		p := servertest.Launch(t, append(good, tt.args...)...)
		if code := p.Wait(); code != tt.code {
			t.Errorf("%q: exit code %d; want %d", tt.args, code, tt.code)
		}
		log := p.Log()
		if len(log) != len(tt.want) || (p.Stdout.Len() > 0) != (tt.code == 0) {
			t.Errorf("%q: said %q, %q", tt.args, p.Stdout.String(), log)
			continue
		}
		for i, want := range tt.want {
			if !strings.HasPrefix(log[i], "trellisd: ") || !strings.Contains(log[i], want) {
				t.Errorf("%q: said %q, which does not have %q", tt.args, log[i], want)
			}
		}
	}
	c := running.Dial(0)
	c.Send("use x")
	c.Want("USING x")
}

func TestCheckConfigShowsWhatIsInForceAndWhoSaysSo(t *testing.T) {
	t.Parallel()
	check := func(args ...string) (string, int) {
		cmd := exec.Command(servertest.Binary, append(args, "--check-config", "--max-memory=2GB", "--idle-timeout", "300")...)
		cmd.Env = append(os.Environ(), "TRELLISD_MAX_JOB_SIZE=64k", "TRELLISD_IDLE_TIMEOUT=1h", "TRELLISD_AUTH_FILE=/missing")
		p := servertest.LaunchCommand(t, cmd)
		code := p.Wait()
		return p.Stdout.String(), code
	}
	auth := servertest.AuthFile(t, servertest.TokenLine("a", "a", "all", "*"))
	out, code := check("--auth-file", auth)
	want := []string{"--max-job-size 64k TRELLISD_MAX_JOB_SIZE", "--auth-file " + auth + " command line", "--max-memory 2GB command line", "--idle-timeout 5m command line", "nothing is wrong"}
	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	if code != 0 || !slices.Equal(lines, want) {
		t.Errorf("exit code %d, %q, want %q", code, lines, want)
	}

	var found struct {
		Options  []struct{ Name, Value, From string }
		Mistakes []string
	}
	out, code = check("-o", "json")
	if err := json.Unmarshal([]byte(out), &found); err != nil || code != servertest.ExitUsage {
		t.Fatalf("exit code %d, %v:\n%s", code, err, out)
	}
	if len(found.Options) != 4 || found.Options[1] != struct{ Name, Value, From string }{"auth-file", "/missing", "TRELLISD_AUTH_FILE"} {
		t.Errorf("%+v", found.Options)
	}
	if len(found.Mistakes) != 1 || !strings.Contains(found.Mistakes[0], "--auth-file: open /missing") {
		t.Errorf("%q", found.Mistakes)
	}
}

func TestCheckConfigReadsFilesAsTheUserThatTheServerBecomes(t *testing.T) {
	t.Parallel()
	lookupNobody(t)
	auth := servertest.AuthFile(t, servertest.TokenLine("a", "a", "all", "*")) // for root alone
	p := servertest.Launch(t, "--check-config", "-u", "nobody", "--auth-file="+auth)
	code, log := p.Wait(), p.Log()
	if code != servertest.ExitUsage || len(log) != 1 || !strings.Contains(log[0], "permission denied") {
		t.Errorf("exit code %d, %q", code, log)
	}
}
