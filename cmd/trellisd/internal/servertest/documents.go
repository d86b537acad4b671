package servertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// DocumentBlock is the text of the block that has this name in README.md or cmd/doc. Callers are in folders
// of cmd/trellisd.
func DocumentBlock(t testing.TB, name string) string {
	t.Helper()
	files, err := filepath.Glob("../../doc/*.md")
	NoError(t, err)
	begin := regexp.MustCompile("(?m)^```[a-z]+ " + name + "\n")
	for _, file := range append(files, "../../../README.md") {
		b, err := os.ReadFile(file)
		NoError(t, err)
		if at := begin.FindIndex(b); at != nil {
			block, _, _ := strings.Cut(string(b[at[1]:]), "```\n")
			return block
		}
	}
	t.Fatalf("no document has a block %q", name)
	return ""
}

// DocumentLines are the lines of a block without comments.
func DocumentLines(t testing.TB, name string) (lines []string) {
	t.Helper()
	for line := range strings.Lines(DocumentBlock(t, name)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// A Reader does what the documents say, in a directory of its own.
type Reader struct {
	t    testing.TB
	Dir  string
	Path string // in which programs are looked for
	Port string // instead of 11300: a free one, and then the one that the server has
}

// NewReader makes a reader that has the programs trellis and trellisd.
func NewReader(t testing.TB) *Reader {
	t.Helper()
	bin := t.TempDir()
	if _, err := Program(bin, "trellis"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(Binary, filepath.Join(bin, "trellisd")); err != nil {
		t.Fatal(err)
	}
	return &Reader{t, t.TempDir(), bin + ":" + os.Getenv("PATH"), "0"}
}

// Command is a line of a document, ready to be run.
func (r *Reader) Command(line string) *exec.Cmd {
	cmd := exec.Command("sh", "-euc", "exec 2>&1; "+strings.ReplaceAll(line, "11300", r.Port))
	if strings.HasPrefix(line, "trellisd ") {
		cmd = exec.Command("sh", "-euc", "exec "+strings.ReplaceAll(line, "11300", r.Port)+" -V --log-format=json")
	}
	cmd.Dir = r.Dir
	cmd.Env = append(os.Environ(), "PATH="+r.Path)
	return cmd
}

// Follow runs lines one after the other, and a server beside those behind it.
func (r *Reader) Follow(lines []string) (s *Server) {
	r.t.Helper()
	for _, line := range lines {
		if strings.HasPrefix(line, "trellisd ") {
			s = Ready(LaunchCommand(r.t, r.Command(line)), 1)
			r.Port = PortOf(r.t, s.Addrs[0].String())
			continue
		}
		if out, err := r.Command(line).CombinedOutput(); err != nil {
			r.t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	return s
}

// Until runs a line until it has succeeded, or failed if that is wanted.
func (r *Reader) Until(line string, success bool) {
	r.t.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(100 * time.Millisecond) {
		out, err := r.Command(line).CombinedOutput()
		if (err == nil) == success {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
}
