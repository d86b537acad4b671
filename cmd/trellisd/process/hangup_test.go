package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

func TestSIGHUPLoadsFilesAgainAndEndsNothing(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	keep, old, fresh := servertest.TokenLine("keep", "keep", "all", "*"), servertest.TokenLine("b", "old", "all", "*"), servertest.TokenLine("b", "fresh", "all", "*")
	path := servertest.AuthFile(t, keep, old)
	s := servertest.Start(t, append(files.Flags(), "--auth-file", path)...)
	as := func(token string) *servertest.Client {
		c := s.Dial(0)
		c.Send("auth " + token)
		c.Want("AUTHENTICATED")
		return c
	}
	keeper, leaver := as("keep"), as("old")
	servertest.WriteAuthFile(t, path, keep, fresh)
	s.Signal(syscall.SIGHUP)
	leaver.WantEOF()
	as("fresh")
	s.WaitText("certificates were reloaded") // which they are only at a signal, as they have not changed

	servertest.NoError(t, os.WriteFile(files.Key, []byte("no key"), 0o600))
	s.Signal(syscall.SIGHUP)
	s.WaitText("what was loaded before stays in force")
	s.DialTLSAs(1, files.Client(), "keep")
	keeper.Send("use x")
	keeper.Want("USING x")
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAClientIsToldWhatCameOfAReload(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	admin, user := servertest.TokenLine("admin", "admin", "admin", "*"), servertest.TokenLine("user", "user", "all", "u*")
	path, web := servertest.AuthFile(t, admin, user), filepath.Join(t.TempDir(), "web.yml")
	servertest.WriteAuthFile(t, web, webConfig)
	s := servertest.Start(t, append(files.Flags(), "--auth-file", path, "--http=127.0.0.1:0", "--web-config-file", web)...)
	c, other := s.Dial(0), s.Dial(0)
	c.Send("auth admin")
	c.Want("AUTHENTICATED")
	other.Send("auth user", "reload")
	other.Want("AUTHENTICATED", "UNKNOWN_COMMAND")
	entries := func(certificates, auth, http string) string {
		return "---\n- name: certificates\n  files: \"" + files.Cert + " " + files.Key + "\"\n" + certificates +
			"- name: auth-file\n  files: \"" + path + "\"\n" + auth +
			"- name: web-config-file\n  files: \"" + web + "\"\n" + http
	}
	const loaded = "  result: loaded\n"
	if got, want := c.Data("reload"), entries(loaded, loaded, loaded); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	other.Send("use u")
	other.Want("USING u") // its line is as it was

	servertest.WriteAuthFile(t, path, admin, "oops\n")
	servertest.WriteAuthFile(t, web, "")
	servertest.NoError(t, os.Remove(files.Key))
	failed := func(err string) string { return "  result: failed\n  error: \"" + err + "\"\n" }
	got := regexp.MustCompile(`1 fields[^"]*`).ReplaceAllString(c.Data("reload"), "1 fields")
	if want := entries(failed("open "+files.Key+": no such file or directory"), failed(path+":2: 1 fields"),
		failed(web+": the file is empty; write what HTTP is to be protected by, or {} for nothing")); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	other.WantEOF() // the right lines of the file count
	c.Send("use x")
	c.Want("USING x")
}

func TestAReloadThatNobodyWaitsForAnyMoreIsHarmless(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, "--auth-file", servertest.AuthFile(t, servertest.TokenLine("a", "a", "all", "*")))
	for range 20 {
		c := s.Dial(0)
		c.Send("auth a", "reload", "reload", "reload")
		c.Want("AUTHENTICATED")
		servertest.NoError(t, c.Conn.Close())
	}
	c := s.Dial(0)
	c.Send("auth a")
	c.Want("AUTHENTICATED")
	if got := c.Data("reload"); !strings.Contains(got, "result: loaded") {
		t.Error(got)
	}
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestSystemdIsToldOfAReload(t *testing.T) {
	t.Parallel()
	conn, path := notifySocket(t)
	cmd := exec.Command(servertest.Binary, "-l127.0.0.1", "-p0", "--auth-file", servertest.AuthFile(t, servertest.TokenLine("a", "a", "all", "*")))
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+path)
	p := servertest.LaunchCommand(t, cmd)
	var told []string
	for len(told) < 3 {
		b := make([]byte, 100)
		n, err := conn.Read(b)
		servertest.NoError(t, err)
		if told = append(told, string(b[:n])); len(told) == 1 {
			p.Signal(syscall.SIGHUP)
		}
	}
	if got, want := strings.Join(told, " "), "READY=1 RELOADING=1 READY=1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
