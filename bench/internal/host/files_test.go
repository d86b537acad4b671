package host

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tellEnv makes this test program tell its child's limit of open files.
const tellEnv = "TRELLIS_HOST_TEST_TELL"

func TestMain(m *testing.M) {
	if os.Getenv(tellEnv) != "" {
		tellLimit()
		return
	}
	m.Run()
}

// tellLimit writes how many files a child of this program may have open.
func tellLimit() {
	err := RaiseFileLimit(0)
	if err == nil {
		cmd := exec.Command("sh", "-c", "ulimit -Sn")
		cmd.Stdout = os.Stdout
		err = cmd.Run()
	}
	if err != nil {
		fmt.Println(err)
	}
}

func TestChildrenMayOpenAsManyFilesAsThisProcess(t *testing.T) {
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
	cmd.Env = append(os.Environ(), tellEnv+"=1")
	out, err := cmd.CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got == "" || got == "200" {
		t.Errorf("the limit of a child is %q, %v", got, err)
	}
}
