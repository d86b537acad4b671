package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// commandBlocks are the blocks of commands in a subsection of the README.
func commandBlocks(t *testing.T, section string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	no(t, err)
	_, rest, found := strings.Cut(string(text), "\n### "+section+"\n")
	if !found {
		t.Fatalf("the README has no section %q", section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	rest, _, _ = strings.Cut(rest, "\n### ")
	for {
		_, behind, found := strings.Cut(rest, "```sh\n")
		if !found {
			return blocks
		}
		var block string
		block, rest, _ = strings.Cut(behind, "```")
		blocks = append(blocks, block)
	}
}

// wrapper puts a program into dir that calls another one, on a port of the test's.
func wrapper(t *testing.T, dir, name, script string) {
	t.Helper()
	no(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/bash\n"+script), 0o700))
}

// What the README says about TLS works, block by block, in one directory.
func TestTheCommandsForTLSWork(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		needPeer(t, "%v", err)
	}
	if _, err := exec.LookPath("bash"); err != nil {
		needPeer(t, "%v", err)
	}
	bin, dir := t.TempDir(), t.TempDir()
	tool, err := program(t.TempDir(), "trellis")
	no(t, err)
	// The server takes a free port and tells it; the tool waits until it has.
	log := filepath.Join(dir, "log")
	wrapper(t, bin, "trellisd", fmt.Sprintf(`exec %s "${@//0.0.0.0:11400/127.0.0.1:0}" -V --log-format=json 2>%s`, binary, log))
	wrapper(t, bin, "trellis", fmt.Sprintf(`
for i in $(seq 400); do
	if grep -q '"ready"' %s; then
		addr=$(sed -n 's/.*"msg":"listening".*"addr":"\([^"]*\)".*/\1/p' %s)
		exec %s "$@" -a "$addr"
	fi
	sleep 0.05
done
cat %s >&2
exit 1
`, log, log, tool, log))
	blocks := commandBlocks(t, "TLS")
	if len(blocks) < 3 {
		t.Fatalf("%d blocks of commands", len(blocks))
	}
	for i, block := range blocks {
		no(t, os.WriteFile(log, nil, 0o600))
		cmd := exec.Command("bash", "-e", "-c", `trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT`+"\n"+block)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("block %d: %v\n%s\n%s", i+1, err, block, out)
		}
	}
}
