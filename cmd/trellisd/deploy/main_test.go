//go:build proof

// Package deploy_test checks what Kubernetes and Docker Compose are given to run, as far as that needs neither of them.
package deploy_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// run is the standard output of a program that make proof builds; variable has its path.
func run(t *testing.T, variable string, args ...string) (out []byte, err error) {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		servertest.NeedPeer(t, "%s is not set", variable)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	return cmd.Output()
}

// stderr is what a program has said that has failed.
func stderr(err error) string {
	if e, ok := err.(*exec.ExitError); ok {
		return string(e.Stderr)
	}
	return ""
}

const (
	binlogDir = "/var/lib/trellis"
	filesDir  = "/etc/trellis"
)

// A container has in its root what the server finds there.
type container struct {
	root string
	args []string
	env  []string // NAME=VALUE
}

// write makes a file of the container.
func (c *container) write(t *testing.T, path string, content []byte) {
	t.Helper()
	path = filepath.Join(c.root, path)
	servertest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	servertest.NoError(t, os.WriteFile(path, content, 0o600))
}

// settings are the options that the server understands, by name, as --check-config shows them. It finds no mistake.
func (c *container) settings(t *testing.T) map[string]string {
	t.Helper()
	here := strings.NewReplacer(binlogDir, c.root+binlogDir, filesDir, c.root+filesDir)
	cmd := exec.CommandContext(t.Context(), servertest.Binary, "--check-config", "--output=json")
	for _, a := range c.args {
		cmd.Args = append(cmd.Args, here.Replace(a))
	}
	cmd.Env = []string{}
	for _, e := range c.env {
		cmd.Env = append(cmd.Env, here.Replace(e))
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q, %q: %v\n%s%s", c.env, c.args, err, out, stderr(err))
	}
	var found struct {
		Options []struct{ Name, Value string }
	}
	servertest.NoError(t, json.Unmarshal(out, &found))
	settings := map[string]string{}
	for _, o := range found.Options {
		settings[o.Name] = strings.ReplaceAll(o.Value, c.root, "")
	}
	return settings
}
