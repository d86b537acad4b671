//go:build proof

package main

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
)

// documentBlock is the text of the block that has this name in the documents.
func documentBlock(t testing.TB, name string) string {
	t.Helper()
	files, err := filepath.Glob("../doc/*.md")
	no(t, err)
	begin := regexp.MustCompile("(?m)^```[a-z]+ " + name + "\n")
	for _, file := range append(files, "../../README.md") {
		b, err := os.ReadFile(file)
		no(t, err)
		if at := begin.FindIndex(b); at != nil {
			block, _, _ := strings.Cut(string(b[at[1]:]), "```\n")
			return block
		}
	}
	t.Fatalf("no document has a block %q", name)
	return ""
}

// documentLines are the lines of a block without comments.
func documentLines(t testing.TB, name string) (lines []string) {
	t.Helper()
	for line := range strings.Lines(documentBlock(t, name)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestAFirstJobIsPutAndDoneAsTheREADMESays(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	s := start(t)
	r.port = portOf(t, s.addrs[0].String())
	top := filepath.Dir(strings.Split(r.path, ":")[0])
	no(t, os.Symlink(strings.Split(r.path, ":")[0], filepath.Join(top, "bin")))
	job := exec.Command("bash", "-euc", strings.Replace(documentBlock(t, "first-job"), "bin/trellis work", "exec bin/trellis work", 1))
	job.Dir = top
	job.Env = append(os.Environ(), "TRELLIS_ADDR="+s.addrs[0].String())
	read, write, err := os.Pipe()
	no(t, err)
	defer read.Close()
	job.Stdout, job.Stderr = write, write
	no(t, job.Start())
	no(t, write.Close())
	c := s.dial(0)
	for end := time.Now().Add(patience); !strings.Contains(c.data("stats"), "\ncmd-delete: 1\n"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Error("the job is not done")
			break
		}
	}
	no(t, job.Process.Signal(os.Interrupt))
	var out bytes.Buffer
	_, _ = out.ReadFrom(read)
	if err := job.Wait(); err != nil || !strings.Contains(out.String(), "hello") {
		t.Errorf("%v\n%s", err, out.String())
	}

	wire, err := exec.Command("bash", "-euc", strings.ReplaceAll(documentBlock(t, "wire"), "11300", r.port)).CombinedOutput()
	if want := "INSERTED 2\r\nRESERVED 2 5\r\nhello\r\nDELETED\r\n"; err != nil || string(wire) != want {
		t.Errorf("%v, %q", err, wire)
	}

	program := filepath.Join(t.TempDir(), "main.go")
	no(t, os.WriteFile(program, []byte(strings.ReplaceAll(documentBlock(t, "go-client"), "11300", r.port)), 0o600))
	client, err := exec.Command("go", "run", program).CombinedOutput()
	if want := "3 hello <nil>\n"; err != nil || string(client) != want {
		t.Errorf("%v, %s", err, client)
	}
}

func TestPrometheusTakesTheConfigurationOfTheDocuments(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "prometheus.yml")
	no(t, os.WriteFile(file, []byte(documentBlock(t, "prometheus")), 0o600))
	cmd := exec.Command("promtool", "check", "config", file)
	if out, err := cmd.CombinedOutput(); err != nil {
		if cmd.Process == nil {
			needPeer(t, "promtool is not installed: %v", err)
		}
		t.Errorf("%v\n%s", err, out)
	}
}

func TestScriptsAskAndChangeByHTTPAsTheDocumentsSay(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			needPeer(t, "%v", err)
		}
	}
	_, hash, _ := strings.Cut(webConfig, "ann: ")
	file := filepath.Join(t.TempDir(), "web.yml")
	writeAuthFile(t, file, strings.Replace(documentBlock(t, "web-config"), "$2y$10$...", strings.TrimSpace(hash), 2))
	s, url := monitored(t, "--console=write", "--web-config-file", file)
	if status, _ := httpGet(t, url+"/metrics"); status != http.StatusUnauthorized {
		t.Errorf("without a password: %d", status)
	}
	c := s.dial(0)
	c.send("use mail", "put 0 0 60 1", "a", "reserve-job 1", "bury 1 0")
	c.want("USING mail", "INSERTED 1", "RESERVED 1 1", "a", "BURIED")
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
	if out := do(documentBlock(t, "api")); !buried.MatchString(out) {
		t.Errorf("%s", out)
	}
	do(documentBlock(t, "api-write"))
	c.send("peek-ready")
	c.want("FOUND 1 1", "a")
}

// extensionsOf are the names that capabilities lists, in its order.
func extensionsOf(t *testing.T) (names []string) {
	t.Helper()
	_, list, found := strings.Cut(start(t).dial(0).data("capabilities"), "\nextensions:\n")
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
		needPeer(t, "%v", err)
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
	run("../..", "cmd/trellisd/deploy/release.sh "+dir+" archive linux/"+runtime.GOARCH, "VERSION=1.2.3", "SOURCE_DATE_EPOCH=1000000000")
	name := "trellis-1.2.3-linux-" + runtime.GOARCH
	run(dir, "tar -xzf "+name+".tar.gz && sha256sum trellis*.gz >SHA256SUMS")
	for file, want := range map[string]string{
		"sbom.txt": "\tdep\tgithub.com/panjf2000/gnet/v2\tv2.", "cmd/doc/SECURITY.md": "# Reporting a hole", "systemd/trellisd.service": "ExecReload=",
	} {
		b, err := os.ReadFile(filepath.Join(dir, name, file))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v, without %q:\n%s", file, err, want, b)
		}
	}
	run(dir, `ssh-keygen -q -t ed25519 -N '' -f key && echo "trellis $(cat key.pub)" >allowed_signers`)
	run(dir, documentBlock(t, "release-sign"), "KEY=key")
	if out := run(dir, documentBlock(t, "release-verify")); !strings.Contains(out, name+".tar.gz: OK") {
		t.Errorf("%s", out)
	}
	no(t, os.WriteFile(filepath.Join(dir, name+".tar.gz"), nil, 0o600))
	if err := exec.Command("bash", "-euc", "cd "+dir+"\n"+documentBlock(t, "release-verify")).Run(); err == nil {
		t.Error("another archive passes")
	}
	run(dir, "echo >>SHA256SUMS")
	if err := exec.Command("bash", "-euc", "cd "+dir+"\n"+documentBlock(t, "release-verify")).Run(); err == nil {
		t.Error("other sums pass")
	}
}
