package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

func TestSIGHUPLoadsFilesAgainAndEndsNothing(t *testing.T) {
	t.Parallel()
	files := newCertFiles(t)
	keep, old, fresh := tokenLine("keep", "keep", "all", "*"), tokenLine("b", "old", "all", "*"), tokenLine("b", "fresh", "all", "*")
	path := authFile(t, keep, old)
	s := start(t, append(files.flags(), "--auth-file", path)...)
	as := func(token string) *client {
		c := s.dial(0)
		c.send("auth " + token)
		c.want("AUTHENTICATED")
		return c
	}
	keeper, leaver := as("keep"), as("old")
	writeAuthFile(t, path, keep, fresh)
	s.signal(syscall.SIGHUP)
	leaver.wantEOF()
	as("fresh")
	s.waitText("certificates were reloaded") // which they are only at a signal, as they have not changed

	no(t, os.WriteFile(files.key, []byte("no key"), 0o600))
	s.signal(syscall.SIGHUP)
	s.waitText("what was loaded before stays in force")
	s.dialTLSAs(1, files.client(), "keep")
	keeper.send("use x")
	keeper.want("USING x")
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAClientIsToldWhatCameOfAReload(t *testing.T) {
	t.Parallel()
	files := newCertFiles(t)
	admin, user := tokenLine("admin", "admin", "admin", "*"), tokenLine("user", "user", "all", "u*")
	path, web := authFile(t, admin, user), filepath.Join(t.TempDir(), "web.yml")
	writeAuthFile(t, web, webConfig)
	s := start(t, append(files.flags(), "--auth-file", path, "--http=127.0.0.1:0", "--web-config-file", web)...)
	c, other := s.dial(0), s.dial(0)
	c.send("auth admin")
	c.want("AUTHENTICATED")
	other.send("auth user", "reload")
	other.want("AUTHENTICATED", "UNKNOWN_COMMAND")
	entries := func(certificates, auth, http string) string {
		return "---\n- name: certificates\n  files: \"" + files.cert + " " + files.key + "\"\n" + certificates +
			"- name: auth-file\n  files: \"" + path + "\"\n" + auth +
			"- name: web-config-file\n  files: \"" + web + "\"\n" + http
	}
	const loaded = "  result: loaded\n"
	if got, want := c.data("reload"), entries(loaded, loaded, loaded); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	other.send("use u")
	other.want("USING u") // its line is as it was

	writeAuthFile(t, path, admin, "oops\n")
	writeAuthFile(t, web, "")
	no(t, os.Remove(files.key))
	failed := func(err string) string { return "  result: failed\n  error: \"" + err + "\"\n" }
	got := regexp.MustCompile(`1 fields[^"]*`).ReplaceAllString(c.data("reload"), "1 fields")
	if want := entries(failed("open "+files.key+": no such file or directory"), failed(path+":2: 1 fields"),
		failed(web+": the file is empty; write what HTTP is to be protected by, or {} for nothing")); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	other.wantEOF() // the right lines of the file count
	c.send("use x")
	c.want("USING x")
}

func TestAReloadThatNobodyWaitsForAnyMoreIsHarmless(t *testing.T) {
	t.Parallel()
	s := start(t, "--auth-file", authFile(t, tokenLine("a", "a", "all", "*")))
	for range 20 {
		c := s.dial(0)
		c.send("auth a", "reload", "reload", "reload")
		c.want("AUTHENTICATED")
		no(t, c.conn.Close())
	}
	c := s.dial(0)
	c.send("auth a")
	c.want("AUTHENTICATED")
	if got := c.data("reload"); !strings.Contains(got, "result: loaded") {
		t.Error(got)
	}
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestSystemdIsToldOfAReload(t *testing.T) {
	t.Parallel()
	conn, path := notifySocket(t)
	cmd := exec.Command(binary, "-l127.0.0.1", "-p0", "--auth-file", authFile(t, tokenLine("a", "a", "all", "*")))
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+path)
	p := launchCommand(t, cmd)
	var told []string
	for len(told) < 3 {
		b := make([]byte, 100)
		n, err := conn.Read(b)
		no(t, err)
		if told = append(told, string(b[:n])); len(told) == 1 {
			p.signal(syscall.SIGHUP)
		}
	}
	if got, want := strings.Join(told, " "), "READY=1 RELOADING=1 READY=1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestWhatCameOfAReloadIsOneLineOfYAML(t *testing.T) {
	t.Parallel()
	if got, want := scalar("a \"b\"\n\x1bc\\ ä"), `"a 'b'  c' ä"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
