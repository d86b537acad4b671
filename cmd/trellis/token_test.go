package main

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"trellis/codec"
)

func TestANewTokenAndItsCredentialArePrinted(t *testing.T) {
	out, _, status := trellis(t, "token", "new")
	words := strings.Fields(out)
	if status != 0 || len(words) != 4 || words[0] != "token" || words[2] != "credential" {
		t.Fatalf("%d: %q", status, out)
	}
	token, credential := words[1], words[3]
	if want := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(token))); credential != want {
		t.Errorf("the credential is %s, want %s", credential, want)
	}
	// It must fit into the name of a tube.
	if !strings.HasPrefix(token, "tr_") || len(token) != 46 || !codec.ValidTubeName([]byte("auth/"+token)) {
		t.Errorf("a token %q", token)
	}
	if again, _, _ := trellis(t, "token", "new"); again == out {
		t.Error("a second token is the same")
	}
}

func TestANewTokenIsWrittenToAFileThatNobodyElseReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	out, _, status := trellis(t, "token", "new", path)
	b, err := os.ReadFile(path)
	if status != 0 || err != nil {
		t.Fatal(status, err)
	}
	token := strings.TrimSpace(string(b))
	if out != fmt.Sprintf("sha256:%x\n", sha256.Sum256([]byte(token))) || string(b) != token+"\n" {
		t.Errorf("it printed %q for %q", out, b)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, errs, status := trellis(t, "token", "new", path); status != 1 || !strings.Contains(errs, "exists") {
		t.Errorf("a second time: %d, %q", status, errs)
	}
	if again, _ := os.ReadFile(path); string(again) != string(b) {
		t.Error("the token was replaced")
	}
}

// asking is a server that wants a token.
func asking(t *testing.T, token string) string {
	t.Helper()
	return serveEach(t, listen(t), func(c net.Conn) {
		in := bufio.NewReader(c)
		switch line, _ := in.ReadString('\n'); line {
		case "auth " + token + "\r\n":
			_, _ = io.WriteString(c, "AUTHENTICATED\r\n")
			if line, _ = in.ReadString('\n'); line == "list-tube-used\r\n" {
				_, _ = io.WriteString(c, "USING default\r\n")
			}
		case "list-tube-used\r\n":
			_, _ = io.WriteString(c, "UNKNOWN_COMMAND\r\n")
		default:
			_, _ = io.WriteString(c, "UNAUTHORIZED\r\n")
		}
	})
}

func TestPingAuthenticatesWithTheTokenOfAFile(t *testing.T) {
	addr := asking(t, "tr_right")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	right, wrong := write("right", "tr_right\n"), write("wrong", "tr_wrong")
	empty, two := write("empty", " \n"), write("two", "tr_right\ntr_wrong\n")
	for _, tt := range []struct{ flag, env, want string }{
		{right, "", ""},
		{"", right, ""},
		{right, wrong, ""}, // the flag counts
		{"", "", "wants a token: give --token-file"},
		{wrong, "", `the answer to the token is "UNAUTHORIZED"`},
		{"", wrong, `the answer to the token is "UNAUTHORIZED"`},
		{dir + "/nosuch", "", "no such file"},
		{empty, "", "does not hold one word"},
		{two, "", "does not hold one word"},
		{"/dev/zero", "", "does not hold one word"},
		{write("large", strings.Repeat("x", 1<<20)), "", "does not hold one word"},
	} {
		t.Setenv(tokenEnv, tt.env)
		args := []string{"ping", "-a", addr}
		if tt.flag != "" {
			args = append(args, "--token-file", tt.flag)
		}
		_, errs, status := trellis(t, args...)
		if (status == 0) != (tt.want == "") || !strings.Contains(errs, tt.want) || strings.Contains(errs, "tr_") {
			t.Errorf("%s, in the environment %s: %d, %q", tt.flag, tt.env, status, errs)
		}
	}
}

func TestATokenIsNotSentWhereOthersCouldReadIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("tr_x"), 0o600); err != nil {
		t.Fatal(err)
	}
	const far = "192.0.2.1" // where nobody is
	for _, line := range []string{
		"stats {}", "ping {}", "top {}", "watch {} t", "put {} x", "work {} t -- true", "bench run {} cycle",
		"console --server " + far + ",token-file=" + path, "console {}",
	} {
		_, errs, status := trellis(t, strings.Fields(strings.ReplaceAll(line, "{}", "-a "+far+" --token-file "+path))...)
		if status == 0 || !strings.Contains(errs, far) || !strings.Contains(errs, "give --tls, or --insecure-token") || strings.Contains(errs, "tr_x") {
			t.Errorf("%s: status %d, %q", line, status, errs)
		}
	}
	for _, allowed := range []string{"--tls", "--insecure-token"} {
		// It tries to connect, and does not get there.
		if _, errs, status := trellis(t, "stats", "-a", far, "--timeout", "50ms", "--token-file", path, allowed); status != exitUnreachable {
			t.Errorf("%s: status %d, %q", allowed, status, errs)
		}
	}
}

func TestEachServerOfTheConsoleGetsItsOwnToken(t *testing.T) {
	dir := t.TempDir()
	var servers []string
	for _, name := range []string{"a", "b"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("tr_"+name), 0o600); err != nil {
			t.Fatal(err)
		}
		servers = append(servers, fake(t, map[string]string{"auth tr_" + name: "AUTHENTICATED\r\n"})+",token-file="+file)
	}
	t.Setenv(tokenEnv, filepath.Join(dir, "a"))
	servers = append(servers, fake(t, nil)) // which does not know the command
	dial := func(tokenFile string, servers []string) (errs []error) {
		f := serverFlags{timeout: time.Minute, token: tokenFlag{path: tokenFile}}
		f.to.register(pflag.NewFlagSet("", pflag.ContinueOnError))
		cfgs, err := f.consoles(servers, false, slog.New(slog.DiscardHandler))
		if err != nil {
			return []error{err}
		}
		for _, cfg := range cfgs {
			c, err := cfg.Dial(t.Context())
			if err == nil {
				err = c.Close()
			}
			errs = append(errs, err)
		}
		return errs
	}
	if errs := dial("", servers); errors.Join(errs...) != nil || len(errs) != 3 {
		t.Errorf("%v", errs)
	}
	plain, _, _ := strings.Cut(servers[0], ",")
	if errs := dial("", []string{plain}); errs[0] != nil { // of one server, that of the environment
		t.Errorf("one server: %v", errs)
	}
	if errs := dial(filepath.Join(dir, "a"), servers); len(errs) != 1 || exitStatus(errs[0]) != exitUsage || !strings.Contains(errs[0].Error(), "--server ADDR,token-file=FILE") {
		t.Errorf("one token for several: %v", errs)
	}
	if errs := dial("", []string{plain + ",token-file=" + dir + "/none"}); exitStatus(errs[0]) != exitUsage {
		t.Errorf("a file that is not there: %v", errs)
	}
}
