package process

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trellis/bench"
	"trellis/bench/load"
	"trellis/cmd/trellisd/internal/servertest"
	"trellis/engine/script"
)

// authorize is script.Socket's.
func authorize(t testing.TB) func([]script.Client) ([]string, error) {
	return func(clients []script.Client) ([]string, error) {
		var text strings.Builder
		for _, c := range clients {
			text.WriteString(servertest.TokenLine(c.Name, script.Token(c.Name), strings.Join(c.Rights, ","), strings.Join(c.Tubes, ",")))
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
	s := servertest.Start(t, "--auth-file", servertest.AuthFile(t, servertest.TokenLine("a", "one", "put,work", "a*"), servertest.TokenLine("b", "two", "all", "*")))
	a, b := s.Dial(0), s.Dial(0)
	a.Send("auth one", "use a", "put 0 0 60 1", "x", "watch a", "reserve", "peek-ready")
	a.Want("AUTHENTICATED", "USING a", "INSERTED 1", "WATCHING 2", "RESERVED 1 1", "x", "UNKNOWN_COMMAND")
	b.Send("use auth/two", "put 0 0 60 1", "x")
	b.Want("USING default", "INSERTED 2")
	for line, reply := range map[string]string{
		"auth three": "UNAUTHORIZED", "use auth/three": "UNKNOWN_COMMAND", "stats": "UNKNOWN_COMMAND", "": "UNKNOWN_COMMAND",
		"POST / HTTP/1.1": "UNKNOWN_COMMAND",
	} {
		c := s.Dial(0)
		c.Send(line)
		c.Want(reply)
		c.WantEOF()
	}
	a.Send("use b")
	a.Want("UNKNOWN_COMMAND")
	a.WantEOF()
	s.WaitText(`"msg":"client authenticated"`)
	s.WaitText(`"msg":"client refused"`)
	s.WaitText(`"command":"peek-ready","tube":"a"`)
	if log := strings.Join(s.Log(), "\n"); strings.Contains(log, "three") || strings.Contains(log, "network:") {
		t.Errorf("it logs what clients send, or warns of a loopback address:\n%s", log)
	}
}

func TestWithoutAnAuthFileAuthIsUnknownAndNobodyIsAsked(t *testing.T) {
	t.Parallel()
	c := servertest.Start(t).Dial(0)
	c.Send("auth one", "use auth/one", "put 0 0 60 1", "x", "list-tube-used")
	c.Want("UNKNOWN_COMMAND", "USING auth/one", "INSERTED 1", "USING auth/one")
}

func TestAUserOfAUnixSocketNeedsNoToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(servertest.SocketDir(t), "s")
	s := servertest.Start(t, "-lunix:"+path, "-l127.0.0.1", "--auth-file",
		servertest.AuthFile(t, fmt.Sprintf("me uid:%d all *\n", os.Getuid()), servertest.TokenLine("a", "one", "all", "*")))
	known, unknown := s.Dial(0), s.Dial(1)
	known.Send("put 0 0 60 1", "x")
	known.Want("INSERTED 1")
	unknown.Send("put 0 0 60 1", "x")
	unknown.Want("UNKNOWN_COMMAND")
	unknown.WantEOF()
	// Another user on the same socket is asked for a token.
	other := servertest.Start(t, "-lunix:"+filepath.Join(servertest.SocketDir(t), "s"), "--auth-file",
		servertest.AuthFile(t, fmt.Sprintf("me uid:%d all *\n", os.Getuid()+1), servertest.TokenLine("a", "one", "all", "*")))
	c := other.Dial(0)
	c.Send("auth one", "use x")
	c.Want("AUTHENTICATED", "USING x")
	d := other.Dial(0)
	d.Send("stats")
	d.Want("UNKNOWN_COMMAND")
	d.WantEOF()
}

func TestAMistakeInAFileEndsTheStartWithFileAndLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		servertest.WriteAuthFile(t, path, text)
		return path
	}
	good := servertest.TokenLine("a", "one", "put", "*")
	bad, none, twice := write("bad", "\n"+strings.Replace(good, " put ", " push ", 1)), write("none", ""), write("twice", good+good)
	pattern := write("pattern", good+servertest.TokenLine("b", "two", "put", "a,b*c"))
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
		p := servertest.Launch(t, append([]string{"-l127.0.0.1", "-p0"}, tt.args...)...)
		if code := p.Wait(); code != servertest.ExitUsage {
			t.Errorf("%s: exit code %d", tt.args, code)
		}
		if log := p.Log(); len(log) != 1 || !strings.HasPrefix(log[0], tt.want) {
			t.Errorf("%s:\n got %q\nwant one line that begins with %q", tt.args, log, tt.want)
		}
	}
}

func TestTokensOnAnAddressThatOthersReachAreWarnedOfOnce(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, "-l0.0.0.0", "-l127.0.0.1", "-l0.0.0.0", "--auth-file", servertest.AuthFile(t, servertest.TokenLine("a", "one", "all", "*")))
	if n := strings.Count(strings.Join(s.Log(), "\n"), "can be read on the network"); n != 1 {
		t.Errorf("warned %d times", n)
	}
	if s := servertest.Start(t, "-l0.0.0.0"); strings.Contains(strings.Join(s.Log(), "\n"), "can be read") {
		t.Error("warned without an authentication file")
	}
}

func TestTheAuthFileIsReadAsTheUserThatTheServerBecomes(t *testing.T) {
	t.Parallel()
	lookupNobody(t)
	path := servertest.AuthFile(t, servertest.TokenLine("a", "one", "all", "*"))
	p := servertest.Launch(t, "-l127.0.0.1", "-p0", "-u", "nobody", "--auth-file", path)
	if code := p.Wait(); code != servertest.ExitUsage {
		t.Errorf("exit code %d", code)
	}
	if log := p.Log(); len(log) != 1 || !strings.Contains(log[0], path+": permission denied") {
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
	servertest.WriteAuthFile(t, path, webConfig)
	s, url := servertest.Monitored(t, "--web-config-file", path)
	s.Dial(0)
	get := func(path, user, password string) int {
		req, err := http.NewRequest(http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			req.SetBasicAuth(user, password)
		}
		status, _ := servertest.Do(t, &http.Client{}, req)
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
	s := servertest.Start(t, "--auth-file", servertest.AuthFile(t, servertest.TokenLine("b", "right", "all", "bench-*"), servertest.TokenLine("c", "poor", "put,work", "*")))
	addr, err := bench.ParseAddress(s.Addrs[0].String())
	if err != nil {
		t.Fatal(err)
	}
	for _, scenario := range []string{"cycle", "produce-consume", "churn"} {
		cfg := bench.Config{
			Addr: addr, Token: "right", Runs: 1,
			Scenario: scenario, Conns: 10, Depth: 1, Threads: 1, Idle: 2, Waiting: 2, Count: 200, Seed: 1, ReplyTimeout: servertest.Patience,
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
