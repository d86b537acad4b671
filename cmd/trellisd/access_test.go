package main

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trellis/bench"
	"trellis/bench/load"
	"trellis/engine/script"
)

// tokenLine is a line of an authentication file for who has a token. An account may stand behind tubes.
func tokenLine(name, token, rights, tubes string) string {
	return fmt.Sprintf("%s sha256:%x %s %s\n", name, sha256.Sum256([]byte(token)), rights, tubes)
}

// authFile writes an authentication file and returns its path.
func authFile(t testing.TB, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "auth")
	writeAuthFile(t, path, lines...)
	return path
}

// writeAuthFile replaces the file at once. A server may read it at any moment, and a disk may take
// seconds between emptying a file and filling it.
func writeAuthFile(t testing.TB, path string, lines ...string) {
	t.Helper()
	no(t, os.WriteFile(path+".new", []byte(strings.Join(lines, "")), 0o600))
	no(t, os.Rename(path+".new", path))
}

// authorize is script.Socket's.
func authorize(t testing.TB) func([]script.Client) ([]string, error) {
	return func(clients []script.Client) ([]string, error) {
		var text strings.Builder
		for _, c := range clients {
			text.WriteString(tokenLine(c.Name, script.Token(c.Name), strings.Join(c.Rights, ","), strings.Join(c.Tubes, ",")))
		}
		f, err := os.CreateTemp(t.TempDir(), "auth")
		if err != nil {
			return nil, err
		}
		if _, err := f.WriteString(text.String()); err != nil {
			return nil, err
		}
		return []string{"--auth-file", f.Name()}, f.Close()
	}
}

func TestClientsAuthenticateByTokenInEitherWay(t *testing.T) {
	t.Parallel()
	s := start(t, "--auth-file", authFile(t, tokenLine("a", "one", "put,work", "a*"), tokenLine("b", "two", "all", "*")))
	a, b := s.dial(0), s.dial(0)
	a.send("auth one", "use a", "put 0 0 60 1", "x", "watch a", "reserve", "peek-ready")
	a.want("AUTHENTICATED", "USING a", "INSERTED 1", "WATCHING 2", "RESERVED 1 1", "x", "UNKNOWN_COMMAND")
	b.send("use auth/two", "put 0 0 60 1", "x")
	b.want("USING default", "INSERTED 2")
	for line, reply := range map[string]string{
		"auth three": "UNAUTHORIZED", "use auth/three": "UNKNOWN_COMMAND", "stats": "UNKNOWN_COMMAND", "": "UNKNOWN_COMMAND",
		"POST / HTTP/1.1": "UNKNOWN_COMMAND",
	} {
		c := s.dial(0)
		c.send(line)
		c.want(reply)
		c.wantEOF()
	}
	a.send("use b")
	a.want("UNKNOWN_COMMAND")
	a.wantEOF()
	s.waitText(`"msg":"client authenticated"`)
	s.waitText(`"msg":"client refused"`)
	s.waitText(`"command":"peek-ready","tube":"a"`)
	if log := strings.Join(s.log(), "\n"); strings.Contains(log, "three") || strings.Contains(log, "network:") {
		t.Errorf("it logs what clients send, or warns of a loopback address:\n%s", log)
	}
}

func TestWithoutAnAuthFileAuthIsUnknownAndNobodyIsAsked(t *testing.T) {
	t.Parallel()
	c := start(t).dial(0)
	c.send("auth one", "use auth/one", "put 0 0 60 1", "x", "list-tube-used")
	c.want("UNKNOWN_COMMAND", "USING auth/one", "INSERTED 1", "USING auth/one")
}

func TestAUserOfAUnixSocketNeedsNoToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "s")
	s := start(t, "-lunix:"+path, "-l127.0.0.1", "--auth-file",
		authFile(t, fmt.Sprintf("me uid:%d all *\n", os.Getuid()), tokenLine("a", "one", "all", "*")))
	known, unknown := s.dial(0), s.dial(1)
	known.send("put 0 0 60 1", "x")
	known.want("INSERTED 1")
	unknown.send("put 0 0 60 1", "x")
	unknown.want("UNKNOWN_COMMAND")
	unknown.wantEOF()
	// Another user on the same socket is asked for a token.
	other := start(t, "-lunix:"+filepath.Join(socketDir(t), "s"), "--auth-file",
		authFile(t, fmt.Sprintf("me uid:%d all *\n", os.Getuid()+1), tokenLine("a", "one", "all", "*")))
	c := other.dial(0)
	c.send("auth one", "use x")
	c.want("AUTHENTICATED", "USING x")
	d := other.dial(0)
	d.send("stats")
	d.want("UNKNOWN_COMMAND")
	d.wantEOF()
}

func TestAMistakeInAFileEndsTheStartWithFileAndLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		writeAuthFile(t, path, text)
		return path
	}
	good := tokenLine("a", "one", "put", "*")
	bad, none, twice := write("bad", "\n"+strings.Replace(good, " put ", " push ", 1)), write("none", ""), write("twice", good+good)
	pattern := write("pattern", good+tokenLine("b", "two", "put", "a,b*c"))
	web, webTLS := write("web.yml", "basic_auth_users:\n  a: 1\n  b: {}\nnonsense: 1\n"), write("tls.yml", "tls_server_config:\n  cert_file: nosuch\n  key_file: nosuch\n")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--auth-file", bad}, "trellisd: --auth-file: " + bad + `:2: unknown right "push"; give put, work, read, all or admin`},
		{[]string{"--auth-file", none}, "trellisd: --auth-file: " + none + ": it names no client"},
		{[]string{"--auth-file", twice}, "trellisd: --auth-file: " + twice + ":2: the credential is that of line 1"},
		{[]string{"--auth-file", pattern}, "trellisd: --auth-file: " + pattern + `:2: no tube can match "b*c"`},
		{[]string{"--auth-file", dir + "/nosuch"}, "trellisd: --auth-file: open " + dir + "/nosuch: no such file or directory"},
		{[]string{"--auth-file="}, "trellisd: empty name for --auth-file; give the path of a file"},
		{[]string{"--web-config-file", web}, "trellisd: --web-config-file is for HTTP, which is off; give --http HOST:PORT too"},
		{[]string{"--http=127.0.0.1:0", "--web-config-file", web}, "trellisd: --web-config-file: " + web + ": yaml: "},
		{[]string{"--http=127.0.0.1:0", "--web-config-file", webTLS}, "trellisd: --web-config-file: " + webTLS + ": "},
		{[]string{"--http=127.0.0.1:0", "--web-config-file", dir + "/nosuch"}, "trellisd: --web-config-file: open " + dir + "/nosuch: no such file or directory"},
	} {
		p := launch(t, append([]string{"-l127.0.0.1", "-p0"}, tt.args...)...)
		if code := p.wait(); code != exitUsage {
			t.Errorf("%s: exit code %d", tt.args, code)
		}
		if log := p.log(); len(log) != 1 || !strings.HasPrefix(log[0], tt.want) {
			t.Errorf("%s:\n got %q\nwant one line that begins with %q", tt.args, log, tt.want)
		}
	}
}

func TestTokensOnAnAddressThatOthersReachAreWarnedOfOnce(t *testing.T) {
	t.Parallel()
	s := start(t, "-l0.0.0.0", "-l127.0.0.1", "-l0.0.0.0", "--auth-file", authFile(t, tokenLine("a", "one", "all", "*")))
	if n := strings.Count(strings.Join(s.log(), "\n"), "can be read on the network"); n != 1 {
		t.Errorf("warned %d times", n)
	}
	if s := start(t, "-l0.0.0.0"); strings.Contains(strings.Join(s.log(), "\n"), "can be read") {
		t.Error("warned without an authentication file")
	}
}

func TestTheAuthFileIsReadAsTheUserThatTheServerBecomes(t *testing.T) {
	t.Parallel()
	lookupNobody(t)
	path := authFile(t, tokenLine("a", "one", "all", "*"))
	p := launch(t, "-l127.0.0.1", "-p0", "-u", "nobody", "--auth-file", path)
	if code := p.wait(); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	if log := p.log(); len(log) != 1 || !strings.Contains(log[0], path+": permission denied") {
		t.Errorf("logged %q", log)
	}
}

// The passwords are "secret".
const webConfig = `basic_auth_users:
  prometheus: $2a$05$0b6/2ipZg8CbPcfPBaVeP.QcyXy7YT357eIxtMWjJ/Tdy1jrxFdAi
  ann: $2a$05$0b6/2ipZg8CbPcfPBaVeP.QcyXy7YT357eIxtMWjJ/Tdy1jrxFdAi
`

func TestHTTPIsProtectedButForWhetherTheServerIsAlive(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "web.yml")
	writeAuthFile(t, path, webConfig)
	s, url := monitored(t, "--web-config-file", path)
	s.dial(0)
	get := func(path, user, password string) int {
		req, err := http.NewRequest(http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			req.SetBasicAuth(user, password)
		}
		status, _ := httpDo(t, &http.Client{}, req)
		return status
	}
	for _, tt := range []struct {
		path, user, password string
		want                 int
	}{
		{"/healthz", "", "", 200},
		{"/readyz", "", "", 200},
		{"/metrics", "", "", 401},
		{"/", "", "", 401},
		{"/nosuch", "", "", 401},
		{"/healthz/../metrics", "", "", 401},
		{"/metrics", "prometheus", "wrong", 401},
		{"/metrics", "other", "secret", 401},
		{"/metrics", "prometheus", "secret", 200},
		{"/healthz", "prometheus", "wrong", 200},
	} {
		if got := get(tt.path, tt.user, tt.password); got != tt.want {
			t.Errorf("%s as %q: %d, want %d", tt.path, tt.user, got, tt.want)
		}
	}
}

func TestTheLoadGeneratorAuthenticates(t *testing.T) {
	t.Parallel()
	s := start(t, "--auth-file", authFile(t, tokenLine("b", "right", "all", "bench-*"), tokenLine("c", "poor", "put,work", "*")))
	addr, err := bench.ParseAddress(s.addrs[0].String())
	if err != nil {
		t.Fatal(err)
	}
	for _, scenario := range []string{"cycle", "produce-consume", "churn"} {
		cfg := bench.Config{
			Addr: addr, Token: "right", Runs: 1,
			Scenario: scenario, Conns: 10, Depth: 1, Threads: 1, Idle: 2, Waiting: 2, Count: 200, Seed: 1, ReplyTimeout: patience,
		}
		res, err := load.Run(t.Context(), cfg)
		if err == nil {
			err = res.Err()
		}
		if err != nil {
			t.Errorf("%s: %v", scenario, err)
		}
		cfg.Token = "wrong"
		if _, err := load.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "UNAUTHORIZED") || strings.Contains(err.Error(), "wrong") {
			t.Errorf("%s with a wrong token: %v", scenario, err)
		}
	}
}
