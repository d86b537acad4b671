package bench

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestServersMayOpenAsManyFilesAsThisProcess(t *testing.T) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	if lim.Max <= 200 {
		t.Skipf("no more than %d files", lim.Max)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -Sn 200 && exec "$0"`, self)
	cmd.Env = append(os.Environ(), fakeEnv+"=limit")
	out, err := cmd.CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got == "" || got == "200" {
		t.Errorf("the limit of a child is %q, %v", got, err)
	}
}
