//go:build proof

package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

// wrapper puts a program into dir that calls another one, on a port of the test's.
func wrapper(t *testing.T, dir, name, script string) {
	t.Helper()
	servertest.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/bash\n"+script), 0o700))
}

// What network.md says about TLS works, block by block, in one directory.
func TestTheCommandsForTLSWork(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		servertest.NeedPeer(t, "%v", err)
	}
	if _, err := exec.LookPath("bash"); err != nil {
		servertest.NeedPeer(t, "%v", err)
	}
	bin, dir := t.TempDir(), t.TempDir()
	tool, err := servertest.Program(t.TempDir(), "trellis")
	servertest.NoError(t, err)
	// The server takes a free port and tells it; the tool waits until it has.
	log := filepath.Join(dir, "log")
	wrapper(t, bin, "trellisd", fmt.Sprintf(`exec %s "${@//0.0.0.0:11400/127.0.0.1:0}" -V --log-format=json 2>%s`, servertest.Binary, log))
	wrapper(t, bin, "trellis", fmt.Sprintf(`
for i in $(seq 2400); do
	if grep -q '"ready"' %s; then
		addr=$(sed -n 's/.*"msg":"listening".*"addr":"\([^"]*\)".*/\1/p' %s)
		exec %s "$@" -a "$addr"
	fi
	sleep 0.05
done
cat %s >&2
exit 1
`, log, log, tool, log))
	blocks := []string{servertest.DocumentBlock(t, "tls-authority"), servertest.DocumentBlock(t, "tls-server"), servertest.DocumentBlock(t, "tls-mutual")}
	for i, block := range blocks {
		servertest.NoError(t, os.WriteFile(log, nil, 0o600))
		cmd := exec.Command("bash", "-e", "-c", `trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT`+"\n"+block)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("block %d: %v\n%s\n%s", i+1, err, block, out)
		}
	}
}
