//go:build proof

package process

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/options"
	"trellis/cmd/trellisd/internal/servertest"
)

func TestAFirstJobIsPutAndDoneAsTheREADMESays(t *testing.T) {
	t.Parallel()
	r := servertest.NewReader(t)
	s := servertest.Start(t)
	r.Port = servertest.PortOf(t, s.Addrs[0].String())
	top := filepath.Dir(strings.Split(r.Path, ":")[0])
	servertest.NoError(t, os.Symlink(strings.Split(r.Path, ":")[0], filepath.Join(top, "bin")))
	job := exec.Command("bash", "-euc", strings.Replace(servertest.DocumentBlock(t, "first-job"), "bin/trellis work", "exec bin/trellis work", 1))
	job.Dir = top
	job.Env = append(os.Environ(), "TRELLIS_ADDR="+s.Addrs[0].String())
	read, write, err := os.Pipe()
	servertest.NoError(t, err)
	defer read.Close()
	job.Stdout, job.Stderr = write, write
	servertest.NoError(t, job.Start())
	servertest.NoError(t, write.Close())
	c := s.Dial(0)
	for end := time.Now().Add(servertest.Patience); !strings.Contains(c.Data("stats"), "\ncmd-delete: 1\n"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Error("the job is not done")
			break
		}
	}
	servertest.NoError(t, job.Process.Signal(os.Interrupt))
	var out bytes.Buffer
	_, _ = out.ReadFrom(read)
	if err := job.Wait(); err != nil || !strings.Contains(out.String(), "hello") {
		t.Errorf("%v\n%s", err, out.String())
	}

	wire, err := exec.Command("bash", "-euc", strings.ReplaceAll(servertest.DocumentBlock(t, "wire"), "11300", r.Port)).CombinedOutput()
	if want := "INSERTED 2\r\nRESERVED 2 5\r\nhello\r\nDELETED\r\n"; err != nil || string(wire) != want {
		t.Errorf("%v, %q", err, wire)
	}

	program := filepath.Join(t.TempDir(), "main.go")
	servertest.NoError(t, os.WriteFile(program, []byte(strings.ReplaceAll(servertest.DocumentBlock(t, "go-client"), "11300", r.Port)), 0o600))
	client, err := exec.Command("go", "run", program).CombinedOutput()
	if want := "3 hello <nil>\n"; err != nil || string(client) != want {
		t.Errorf("%v, %s", err, client)
	}
}

func TestPrometheusTakesTheConfigurationOfTheDocuments(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "prometheus.yml")
	servertest.NoError(t, os.WriteFile(file, []byte(servertest.DocumentBlock(t, "prometheus")), 0o600))
	cmd := exec.Command("promtool", "check", "config", file)
	if out, err := cmd.CombinedOutput(); err != nil {
		if cmd.Process == nil {
			servertest.NeedPeer(t, "promtool is not installed: %v", err)
		}
		t.Errorf("%v\n%s", err, out)
	}
}

func TestScriptsAskAndChangeByHTTPAsTheDocumentsSay(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			servertest.NeedPeer(t, "%v", err)
		}
	}
	_, hash, _ := strings.Cut(webConfig, "ann: ")
	file := filepath.Join(t.TempDir(), "web.yml")
	servertest.WriteAuthFile(t, file, strings.Replace(servertest.DocumentBlock(t, "web-config"), "$2y$10$...", strings.TrimSpace(hash), 2))
	s, url := servertest.Monitored(t, "--console=write", "--web-config-file", file)
	if status, _ := servertest.Get(t, url+"/metrics"); status != http.StatusUnauthorized {
		t.Errorf("without a password: %d", status)
	}
	c := s.Dial(0)
	c.Send("use mail", "put 0 0 60 1", "a", "reserve-job 1", "bury 1 0")
	c.Want("USING mail", "INSERTED 1", "RESERVED 1 1", "a", "BURIED")
	do := func(block string) string {
		block = strings.ReplaceAll(block, "127.0.0.1:11380", strings.TrimPrefix(url, "http://"))
		block = strings.NewReplacer("-u ann ", "", "curl -s ", "curl -s -u ann:secret ").Replace(block)
		out, err := exec.Command("sh", "-euc", block).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return string(out)
	}
	buried := regexp.MustCompile(`"mail",\s+"current-jobs-buried": 1\s`)
	if out := do(servertest.DocumentBlock(t, "api")); !buried.MatchString(out) {
		t.Errorf("%s", out)
	}
	do(servertest.DocumentBlock(t, "api-write"))
	c.Send("peek-ready")
	c.Want("FOUND 1 1", "a")
}

// extensionsOf are the names that capabilities lists, in its order.
func extensionsOf(t *testing.T) (names []string) {
	t.Helper()
	_, list, found := strings.Cut(servertest.Start(t).Dial(0).Data("capabilities"), "\nextensions:\n")
	if !found {
		t.Fatal("capabilities lists no extensions")
	}
	for line := range strings.Lines(list) {
		name, found := strings.CutPrefix(strings.TrimSpace(line), "- ")
		if !found {
			t.Fatalf("capabilities lists %q", line)
		}
		names = append(names, name)
	}
	if len(names) < 10 {
		t.Fatalf("capabilities lists %q only", names)
	}
	return names
}

// mentioned are those of the names that stand in the lines of a text, in their order there.
// A tag of put stands with a colon behind it.
func mentioned(names, lines []string) (found []string) {
	for _, line := range lines {
		for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" ,`<[|\n", r) }) {
			if tag, _, ok := strings.Cut(word, ":"); ok {
				word = tag
			}
			if slices.Contains(names, word) {
				found = append(found, word)
			}
		}
	}
	return found
}

func TestTheManualHasTheExtensionsInTheOrderOfCapabilities(t *testing.T) {
	t.Parallel()
	names := extensionsOf(t)
	_, section, _ := strings.Cut(options.Manual(), "\nEXTENSIONS\n")
	_, section, _ = strings.Cut(section, "\n\n") // what is said before of all
	section, _, _ = strings.Cut(section, "\nLIMITS\n")
	var headings []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, "     ") {
			headings = append(headings, line)
		}
	}
	if got := mentioned(names, headings); !slices.Equal(got, names) {
		t.Errorf("the manual has the commands\n%q, capabilities\n%q", got, names)
	}
}

func TestAReleaseHasWhatItIsCheckedBy(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		servertest.NeedPeer(t, "%v", err)
	}
	dir := t.TempDir()
	run := func(in, script string, env ...string) string {
		cmd := exec.Command("bash", "-euc", script)
		cmd.Dir, cmd.Env = in, append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return string(out)
	}
	run("../../..", "cmd/trellisd/deploy/release.sh "+dir+" archive linux/"+runtime.GOARCH, "VERSION=1.2.3", "SOURCE_DATE_EPOCH=1000000000")
	name := "trellis-1.2.3-linux-" + runtime.GOARCH
	run(dir, "tar -xzf "+name+".tar.gz && sha256sum trellis*.gz >SHA256SUMS")
	for file, want := range map[string]string{
		"sbom.txt": "\tdep\tgithub.com/panjf2000/gnet/v2\tv2.", "cmd/doc/SECURITY.md": "# Reporting a hole", "systemd/trellisd.service": "ExecReload=",
		"helm/trellis/files/trellis.rules.yml": "TrellisDown",
	} {
		b, err := os.ReadFile(filepath.Join(dir, name, file))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v, without %q:\n%s", file, err, want, b)
		}
	}
	run(dir, `ssh-keygen -q -t ed25519 -N '' -f key && echo "trellis $(cat key.pub)" >allowed_signers`)
	run(dir, servertest.DocumentBlock(t, "release-sign"), "KEY=key")
	if out := run(dir, servertest.DocumentBlock(t, "release-verify")); !strings.Contains(out, name+".tar.gz: OK") {
		t.Errorf("%s", out)
	}
	servertest.NoError(t, os.WriteFile(filepath.Join(dir, name+".tar.gz"), nil, 0o600))
	if err := exec.Command("bash", "-euc", "cd "+dir+"\n"+servertest.DocumentBlock(t, "release-verify")).Run(); err == nil {
		t.Error("another archive passes")
	}
	run(dir, "echo >>SHA256SUMS")
	if err := exec.Command("bash", "-euc", "cd "+dir+"\n"+servertest.DocumentBlock(t, "release-verify")).Run(); err == nil {
		t.Error("other sums pass")
	}
}
