//go:build proof

package deploy_test

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

// composition is what is in compose.yaml, as far as it is looked at.
type composition struct {
	Services map[string]struct {
		Command     []string
		Environment map[string]string
		Configs     []struct{ Source, Target string }
		Volumes     []struct{ Source, Target string }
	}
	Configs map[string]struct{ Content, File string }
}

func readComposition(t *testing.T) (c composition) {
	t.Helper()
	out, err := run(t, "TRELLIS_COMPOSE", "--format=json", "compose.yaml")
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr(err))
	}
	servertest.NoError(t, json.Unmarshal(out, &c))
	return c
}

var composedMembers = []string{"q1", "q2", "q3"}

func TestMembersOfTheCompositionAreStartedRight(t *testing.T) {
	t.Parallel()
	c := readComposition(t)
	root := t.TempDir()
	servertest.NoError(t, os.MkdirAll(root+binlogDir, 0o755))
	servertest.NoError(t, os.MkdirAll(root+filesDir, 0o755))
	makeCertificates(t, c.Services["certificates"].Command, root+filesDir)
	for _, name := range composedMembers {
		s := c.Services[name]
		member := container{root: root, args: s.Command}
		for variable, value := range s.Environment {
			member.env = append(member.env, variable+"="+value)
		}
		settings := member.settings(t)
		if want := name + "=" + name + ":11390"; settings["node"] != want || !strings.Contains(settings["cluster"], want) {
			t.Errorf("%s: %q", name, settings)
		}
		mounts := map[string]string{}
		for _, v := range s.Volumes {
			mounts[v.Target] = v.Source
		}
		if mounts[binlogDir] != name || mounts[filesDir] != "certificates" {
			t.Errorf("%s: %q", name, mounts)
		}
	}
}

// makeCertificates does what the service does that makes the members' certificate, and verifies that.
func makeCertificates(t *testing.T, command []string, dir string) {
	t.Helper()
	if len(command) != 3 {
		t.Fatalf("%q", command)
	}
	for range 2 { // the service is started again with the others
		cmd := exec.CommandContext(t.Context(), command[0], command[1], "chown() { :; }\n"+command[2])
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	read := func(name string) *x509.Certificate {
		text, err := os.ReadFile(filepath.Join(dir, name))
		servertest.NoError(t, err)
		block, _ := pem.Decode(text)
		cert, err := x509.ParseCertificate(block.Bytes)
		servertest.NoError(t, err)
		return cert
	}
	roots := x509.NewCertPool()
	roots.AddCert(read("ca.crt"))
	member := read("member.crt")
	for _, host := range composedMembers {
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			_, err := member.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}})
			servertest.NoError(t, err)
		}
	}
}

func TestTheCompositionHasWhatTheDocumentsAndTheFilesHave(t *testing.T) {
	t.Parallel()
	c := readComposition(t)
	if want := servertest.DocumentBlock(t, "balancer"); c.Configs["haproxy"].Content != want {
		t.Errorf("%s\nand in the documents\n%s", c.Configs["haproxy"].Content, want)
	}
	here, err := os.Getwd()
	servertest.NoError(t, err)
	for config, file := range map[string]string{"rules": "prometheus/trellis.rules.yml", "dashboard": "grafana/trellis.json"} {
		if got, want := c.Configs[config].File, filepath.Join(here, file); got != want {
			t.Errorf("%s is %s, not %s", config, got, want)
		}
	}
	dir := t.TempDir()
	for _, config := range c.Services["prometheus"].Configs {
		text := []byte(c.Configs[config.Source].Content)
		if file := c.Configs[config.Source].File; file != "" {
			text, err = os.ReadFile(file)
			servertest.NoError(t, err)
		}
		servertest.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(config.Target)), text, 0o600))
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		servertest.NeedPeer(t, "%v", err)
	}
	out, err := exec.CommandContext(t.Context(), promtool, "check", "config", filepath.Join(dir, "prometheus.yml")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "1 rule files found") {
		t.Errorf("%v\n%s", err, out)
	}
}
