//go:build proof

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A screen is a terminal in which the command runs.
type screen struct {
	t      *testing.T
	socket string
}

// startScreen runs the command in tmux.
func startScreen(t *testing.T, args ...string) *screen {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("TRELLIS_NEED_PEERS") == "1" {
			t.Fatalf("TRELLIS_NEED_PEERS is set, and tmux is not installed: %v", err)
		}
		t.Skipf("tmux is not installed: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t, filepath.Join(t.TempDir(), "tmux")}
	s.tmux("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "20", "sh") // stays when the command ends
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", s.socket, "kill-server").Run() })
	s.tmux("set-option", "-g", "status", "off")
	s.tmux("resize-window", "-x", "120", "-y", "20")
	for i, arg := range args {
		args[i] = "'" + arg + "'"
	}
	s.keys("PS1=; "+mainEnv+"=1 "+self+" "+strings.Join(args, " ")+"; echo status $?", "Enter")
	return s
}

func (s *screen) tmux(args ...string) string {
	s.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", s.socket}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (s *screen) keys(keys ...string) {
	s.t.Helper()
	s.tmux(append([]string{"send-keys"}, keys...)...)
}

func (s *screen) text() string { return s.tmux("capture-pane", "-p") }

// await waits until the screen shows something.
func (s *screen) await(what string, shown func(text string) bool) {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the screen:\n%s", s.text())
		}
	}()
	eventually(s.t, what, func() bool { return shown(s.text()) })
}

// awaitText waits until the screen shows texts one behind the other.
func (s *screen) awaitText(texts ...string) {
	s.t.Helper()
	s.await(fmt.Sprintf("%q", texts), func(text string) bool {
		for _, part := range texts {
			_, rest, found := strings.Cut(text, part)
			if !found {
				return false
			}
			text = rest
		}
		return true
	})
}

func TestTopLivesInATerminal(t *testing.T) {
	onBothServers(t, func(t *testing.T, s *queueServer) {
		c := s.dial()
		c.put("alpha", "5", "0", "60", "a")
		c.put("beta", "5", "0", "60", "b")
		c.put("beta", "5", "0", "60", "c")
		screen := startScreen(t, "top", "-a", s.addr, "-i", "100ms")
		screen.awaitText("trellis top", "jobs     ready 3", "TUBE", "READY↓", "beta", "alpha", "default", "? help")

		c.put("gamma", "5", "0", "60", "d")
		for range 5 {
			c.do("put 5 0 60 1", "x")
		}
		screen.awaitText("READY↓", "gamma ", "beta ", "alpha ") // it goes on by itself

		screen.keys("r")
		screen.awaitText("READY↑", "default ", "alpha ", "beta ", "gamma ")
		screen.keys("n")
		screen.awaitText("TUBE↓", "alpha ", "beta ", "default ", "gamma ")
		screen.keys("Right")
		screen.awaitText("READY↓", "gamma ", "beta ", "alpha ")

		screen.keys("/")
		screen.awaitText("filter: _")
		screen.keys("a", "m", "m", "Enter")
		screen.await("only gamma", func(text string) bool {
			return strings.Contains(text, `with "amm" in their names`) && strings.Contains(text, "gamma") && !strings.Contains(text, "alpha")
		})
		screen.keys("Escape")
		screen.awaitText("gamma", "beta", "alpha")

		screen.keys("?")
		screen.awaitText("pause the view")
		screen.keys("?")
		screen.awaitText("gamma", "beta", "alpha")

		screen.keys("p")
		screen.awaitText("paused")
		c.put("omega", "0", "0", "60", "e")
		screen.keys("r") // it is drawn again, without being asked for
		screen.await("the rows without omega", func(text string) bool {
			return strings.Contains(text, "READY↑") && !strings.Contains(text, "omega")
		})
		screen.keys("p")
		screen.awaitText("omega")

		s.kill()
		screen.awaitText("trying again", "gamma")
		s.start()
		screen.await("the server is back", func(text string) bool {
			return strings.Contains(text, "jobs     ready 0") && !strings.Contains(text, "trying again")
		})

		screen.tmux("resize-window", "-x", "60", "-y", "8")
		screen.await("a small screen", func(text string) bool {
			return strings.Contains(text, "READY") && !strings.Contains(text, "PAUSED") && strings.Contains(text, "? help")
		})
		screen.keys("q")
		screen.awaitText("status 0")
	})
}

func TestTopGivesTheTerminalBackAtASignal(t *testing.T) {
	s := startServer(t)
	screen := startScreen(t, "top", "-a", s.addr)
	screen.awaitText("trellis top", "? help")
	screen.keys("C-c")
	screen.awaitText("status 0")
	screen.keys("echo echoed by $0", "Enter")
	screen.awaitText("echo echoed by $0", "echoed by sh")
}
