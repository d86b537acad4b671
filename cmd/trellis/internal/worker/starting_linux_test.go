package worker

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// startUntold starts a command of a run as a worker does that does not come to tell its group. It returns its processes.
func startUntold(t *testing.T, run string) (cmd *exec.Cmd, child int) {
	t.Helper()
	cmd = exec.Command("sh", "-c", "sleep 1000 & echo $!; wait")
	cmd.Env = append(os.Environ(), runEnv+"="+run)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if _, wrong := fmt.Sscan(line, &child); err != nil || wrong != nil {
		t.Fatal(err, wrong)
	}
	return cmd, child
}

// ended tells whether a process has ended, whoever has still to wait for it.
func ended(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return state == "" || state[0] == 'Z' || state[0] == 'X'
}

func TestAMinderFindsWhatAWorkerStartedWhoseEndCameBeforeItCouldTell(t *testing.T) {
	m := startMinder(t)
	run := m.begin()
	theirs, child := startUntold(t, run)
	other, stays := startUntold(t, run+"0") // of another run, the name of which begins in the same way
	defer func() {
		m.end(run)
		_ = other.Process.Kill()
		_ = other.Wait()
		if p, err := os.FindProcess(stays); err == nil {
			_ = p.Kill()
		}
	}()
	m.lose()
	if err := theirs.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Error(err)
	}
	eventually(t, "the end of what it has started", func() bool { return ended(child) })
	if ended(stays) || ended(other.Process.Pid) {
		t.Error("the minder has killed processes of another run")
	}
}
