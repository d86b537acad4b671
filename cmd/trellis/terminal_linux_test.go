package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// onTerminal runs the command on a terminal at which somebody types, and returns what it shows and
// its exit status.
func onTerminal(t *testing.T, typed string, env []string, args ...string) (shown string, status int) {
	t.Helper()
	return onTerminalAfter(t, "", typed, env, args...)
}

// onTerminalAfter is onTerminal, but nothing is typed before the command has shown something.
func onTerminalAfter(t *testing.T, before, typed string, env []string, args ...string) (shown string, status int) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	defer master.Close()
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(append(os.Environ(), mainEnv+"=1", "TERM=xterm", "NO_COLOR="), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	// The terminal is the command's own: libraries put questions to no other.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	var all []byte
	for buf := make([]byte, 4096); !strings.Contains(string(all), before); {
		n, err := master.Read(buf)
		if all = append(all, buf[:n]...); err != nil {
			t.Fatalf("%v, it shows %q", err, all)
		}
	}
	if _, err := io.WriteString(master, typed); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(master) // ends with an error when the other side has closed
	_ = cmd.Wait()
	return string(append(all, rest...)), cmd.ProcessState.ExitCode()
}

func TestColoursAreForTerminals(t *testing.T) {
	t.Parallel()
	addr := quiet(t)
	shown, status := onTerminal(t, "", nil, "tubes", "-a", addr)
	if status != 0 || !strings.Contains(shown, string(bold)+"TUBE") || !strings.Contains(shown, string(red)+"3\x1b[0m") {
		t.Errorf("status %d, %q", status, shown)
	}
	for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
		if shown, status = onTerminal(t, "", []string{env}, "tubes", "-a", addr); status != 0 || strings.Contains(shown, "\x1b") {
			t.Errorf("%s: status %d, %q", env, status, shown)
		}
	}
	if shown, status = onTerminal(t, "", nil, "tubes", "-o", "json", "-a", addr); status != 0 || strings.Contains(shown, "\x1b") {
		t.Errorf("JSON: status %d, %q", status, shown)
	}
	if out, _, _ := trellis(t, "tubes", "-a", addr); strings.Contains(out, "\x1b") {
		t.Errorf("not on a terminal: %q", out)
	}
}

func TestHostileTextOnATerminal(t *testing.T) {
	t.Parallel()
	addr := hostile(t)
	for _, line := range []string{"peek 1", "peek 1 -o json", "peek 1 --raw", "tubes", "stats", "jobs mail --state ready --grep .", "connections", "delete 1"} {
		shown, _ := onTerminal(t, "", []string{"NO_COLOR=1"}, append(strings.Fields(line), "-a", addr)...)
		if text := strings.ReplaceAll(shown, "\r\n", "\n"); shown == "" || !plain(text) {
			t.Errorf("%s: %q", line, shown)
		}
	}
	shown, status := onTerminal(t, "", nil, "peek", "1", "--raw", "-a", addr)
	if status != 2 || !strings.Contains(shown, "could control the terminal") {
		t.Errorf("status %d, %q", status, shown)
	}
	if out, _, status := trellis(t, "peek", "1", "--raw", "-a", addr); status != 0 || out != hostileText {
		t.Errorf("into a file: status %d, %q", status, out)
	}
	if shown, status = onTerminal(t, "", nil, "peek", "12", "--raw", "-a", quiet(t)); status != 0 || shown != "he\r\nllo!" {
		t.Errorf("harmless: status %d, %q", status, shown)
	}
}

func TestClearAsksOnATerminal(t *testing.T) {
	t.Parallel()
	addr := "unix:" + startTrellisd(t)
	c := connect(t, addr)
	put := func() { putMany(t.Context(), t, c, "mail", 2, 0) }
	put()
	for _, answer := range []string{"n\n", "\n", "nonsense\n", "\x04"} {
		shown, status := onTerminal(t, answer, nil, "clear", "mail", "-a", addr)
		if status != 1 || !strings.Contains(shown, "Delete the jobs of tube mail at "+addr+": 2 ready, 0 reserved, 0 delayed, 0 buried? [y/N] ") ||
			!strings.Contains(shown, "nothing was deleted") {
			t.Errorf("%q: status %d, %q", answer, status, shown)
		}
	}
	for _, answer := range []string{"y\n", "YES\n"} {
		if shown, status := onTerminal(t, answer, nil, "clear", "mail", "-a", addr); status != 0 || !strings.Contains(shown, "2 jobs of tube mail deleted") {
			t.Errorf("%q: status %d, %q", answer, status, shown)
		}
		put()
	}
	// Not what it says then: a terminal drops what it has not shown when somebody interrupts.
	if shown, status := onTerminalAfter(t, "[y/N] ", "\x03", nil, "clear", "mail", "-a", addr); status != exitInterrupted {
		t.Errorf("Ctrl-C: status %d, %q", status, shown)
	}
	if stats, err := c.StatsTube(t.Context(), "mail"); err != nil || stats.Uint("current-jobs-ready") != 2 {
		t.Errorf("after Ctrl-C: %v, %v", stats, err)
	}
}
