package compare

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// awaitEnd waits until nobody listens on an address.
func awaitEnd(t *testing.T, addr string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		c.Close()
		if time.Now().After(deadline) {
			t.Fatalf("the server on %s goes on", addr)
		}
	}
}

// A wrapper that does not exec is another process than its server, which has its output too.
func TestAWrapperEndsWithItsServer(t *testing.T) {
	script := filepath.Join(t.TempDir(), "run.sh")
	server := fakeCommand(t, "wrapped", "")
	self := strings.Fields(server.Command)[0]
	if err := os.WriteFile(script, []byte(self+" \"$1\"\ntrue\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server.Command = "sh " + script + " {port}"
	for name, end := range map[string]func(*process){
		"stopped": (*process).stop,
		"killed":  (*process).kill,
	} {
		all, err := server.start(t.Context(), "", "", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		end(all[0])
		if out := all[0].output.String(); out != "" {
			t.Errorf("%s: %s", name, out)
		}
		awaitEnd(t, all[0].addr.Name)
	}
}

func TestAServerEndsWithTheProgramThatHasStartedIt(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can do that")
	}
	t.Setenv(fakeEnv, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self, "parent")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = parent.Process.Kill()
	_ = parent.Wait()
	if err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, strings.TrimSpace(line))
}
