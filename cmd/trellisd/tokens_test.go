//go:build proof

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A reader does what the documents say, in a directory of its own.
type reader struct {
	t    testing.TB
	dir  string
	path string // in which programs are looked for
	port string // instead of 11300: a free one, and then the one that the server has
}

func newReader(t testing.TB) *reader {
	t.Helper()
	bin := t.TempDir()
	if _, err := program(bin, "trellis"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary, filepath.Join(bin, "trellisd")); err != nil {
		t.Fatal(err)
	}
	return &reader{t, t.TempDir(), bin + ":" + os.Getenv("PATH"), "0"}
}

// command is a line of a document, ready to be run.
func (r *reader) command(line string) *exec.Cmd {
	cmd := exec.Command("sh", "-euc", "exec 2>&1; "+strings.ReplaceAll(line, "11300", r.port))
	if strings.HasPrefix(line, "trellisd ") {
		cmd = exec.Command("sh", "-euc", "exec "+strings.ReplaceAll(line, "11300", r.port)+" -V --log-format=json")
	}
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "PATH="+r.path)
	return cmd
}

// follow runs lines one after the other, and a server beside those behind it.
func (r *reader) follow(lines []string) (s *server) {
	r.t.Helper()
	for _, line := range lines {
		if strings.HasPrefix(line, "trellisd ") {
			s = ready(launchCommand(r.t, r.command(line)), 1)
			r.port = portOf(r.t, s.addrs[0].String())
			continue
		}
		if out, err := r.command(line).CombinedOutput(); err != nil {
			r.t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	return s
}

// until runs a line until it has succeeded, or failed if that is wanted.
func (r *reader) until(line string, success bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		out, err := r.command(line).CombinedOutput()
		if (err == nil) == success {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
}

func TestTokensAreMadeUsedAndReplacedAsTheDocumentsSay(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	s := r.follow(documentLines(t, "tokens"))
	ping := func(token string) string {
		return fmt.Sprintf("trellis ping -a 127.0.0.1:11300 --token-file %s.token", token)
	}
	b, err := os.ReadFile(filepath.Join(r.dir, "billing.token"))
	if err != nil {
		t.Fatal(err)
	}
	c := s.dial(0)
	c.send("use auth/"+strings.TrimSpace(string(b)), "use billing/mail", "put 0 0 60 5", "hello", "stats")
	c.want("USING default", "USING billing/mail", "INSERTED 1", "UNKNOWN_COMMAND")

	rotation := documentLines(t, "rotation")
	if len(rotation) != 2 {
		t.Fatalf("%q", rotation)
	}
	r.follow(rotation[:1])
	r.until(ping("billing-2"), true)
	r.until(ping("billing"), true)
	r.follow(rotation[1:])
	c.wantEOF()
	r.until(ping("billing"), false)
	r.until(ping("billing-2"), true)
}
