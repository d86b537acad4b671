package process

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

// visit makes a request as a browser does, as the user if there is one.
func visit(t *testing.T, method, address, user, password string, form url.Values) (status int, page string) {
	t.Helper()
	req, err := http.NewRequest(method, address, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	return servertest.Do(t, &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, req)
}

func TestTheConsoleShowsTheServerThatItIsPartOf(t *testing.T) {
	t.Parallel()
	s, address := servertest.Monitored(t, "-b", t.TempDir())
	c := s.Dial(0)
	c.Send("use mail/out", "put 5 0 60 5", "hello")
	c.Want("USING mail/out", "INSERTED 1")
	c.Send("use imports", "put 5 0 60 1 grp:import/1", "x", "put 5 0 60 1 aft:import/1", "y", "reserve-job 2", "bury 2 5")
	c.Want("USING imports", "INSERTED 2", "INSERTED 3", "RESERVED 2 1", "x", "BURIED")
	for path, want := range map[string]string{
		"/": "mail/out", "/tubes": "mail/out", "/tubes/mail%2Fout": "Next jobs", "/tubes/mail%2Fout/jobs": "hello", "/jobs/1": "hello",
		"/?range=6h": "1 job waiting for groups of which all that is left is buried.", "/failed": `href="/groups/import%2F1"`, "/jobs/2": "it blocks the group",
		"/connections": "Connections", "/server": "Synced", "/server?": "(command line)", "/api/v1/tubes/mail%2Fout": `"current-jobs-ready":1`,
	} {
		if status, page := visit(t, http.MethodGet, address+path, "", "", nil); status != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%s: %d without %q\n%s", path, status, want, page)
		}
	}
	if status, _ := visit(t, http.MethodPost, address+"/jobs/1/delete", "", "", url.Values{"confirmed": {"yes"}}); status != http.StatusForbidden {
		t.Errorf("a delete in a console that is read-only: %d", status)
	}
	c.Send("peek 1")
	c.Want("FOUND 1 5", "hello")
	if _, text := visit(t, http.MethodGet, address+"/metrics", "", "", nil); !strings.Contains(text, "beanstalkd_build_info") {
		t.Error("the metrics are gone")
	}
}

func TestTheConsoleChangesWhatSomebodyKnownAsksFor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "web.yml")
	servertest.WriteAuthFile(t, path, webConfig)
	s, address := servertest.Monitored(t, "--console=write", "--web-config-file", path)
	c := s.Dial(0)
	c.Send("put 5 0 60 1", "a")
	c.Want("INSERTED 1")
	form := url.Values{"confirmed": {"yes"}}
	for _, password := range []string{"", "wrong"} {
		if status, _ := visit(t, http.MethodPost, address+"/jobs/1/delete", "ann", password, form); status != http.StatusUnauthorized {
			t.Errorf("with the password %q: %d", password, status)
		}
	}
	if status, _ := visit(t, http.MethodPost, address+"/jobs/1/delete", "prometheus", "secret", form); status != http.StatusForbidden {
		t.Errorf("with the password for scrapes: %d", status)
	}
	c.Send("peek 1")
	c.Want("FOUND 1 1", "a")
	if status, page := visit(t, http.MethodPost, address+"/jobs/1/delete", "ann", "secret", form); status != http.StatusSeeOther {
		t.Errorf("with the password: %d %s", status, page)
	}
	c.Send("peek 1")
	c.Want("NOT_FOUND")
	s.WaitText(`"who":"ann"`)

	// Who takes the users out of the file does not let everybody in.
	c.Send("put 5 0 60 1", "a")
	c.Want("INSERTED 2")
	for _, text := range []string{"", "{}\n", "basic_auth_users:\n"} {
		servertest.WriteAuthFile(t, path, text)
		if status, _ := visit(t, http.MethodPost, address+"/jobs/2/delete", "anybody", "x", form); status != http.StatusUnauthorized {
			t.Errorf("with %q in the file: %d", text, status)
		}
		if status, page := visit(t, http.MethodGet, address+"/metrics", "prometheus", "secret", nil); status != http.StatusOK || !strings.Contains(page, `reload_failing{file="web-config-file"} 1`) {
			t.Errorf("with %q in the file: %d, and that is not in the metrics", text, status)
		}
	}
	c.Send("peek 2")
	c.Want("FOUND 2 1", "a")
}

func TestOnlyWritersChangeJobsInTheConsole(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "web.yml")
	hash := "$2a$05$0b6/2ipZg8CbPcfPBaVeP.QcyXy7YT357eIxtMWjJ/Tdy1jrxFdAi"
	servertest.WriteAuthFile(t, path, "basic_auth_users: {prometheus: "+hash+", ann: "+hash+", bob: "+hash+"}\n")
	_, address := servertest.Monitored(t, "--console=write", "--web-config-file", path, "--console-writers=bob,prometheus")
	for user, want := range map[string]int{"ann": http.StatusForbidden, "bob": http.StatusSeeOther, "prometheus": http.StatusSeeOther} {
		if status, page := visit(t, http.MethodPost, address+"/server/undrain", user, "secret", url.Values{}); status != want {
			t.Errorf("%s: %d %s", user, status, page)
		}
	}
}

func TestTheConsoleIsThereWhereItShowsNobodyMore(t *testing.T) {
	t.Parallel()
	tokens := servertest.AuthFile(t, servertest.TokenLine("a", "one", "all", "*"))
	passwords := filepath.Join(t.TempDir(), "web.yml")
	servertest.WriteAuthFile(t, passwords, webConfig)
	const index = "/metrics\n/healthz\n/readyz\n/leaderz\n"
	for _, tt := range []struct {
		name string
		args []string
		want bool
	}{
		{"loopback", nil, true},
		{"switched off", []string{"--console=off"}, false},
		{"tokens", []string{"--auth-file", tokens}, false},
		{"tokens, and asked for", []string{"--auth-file", tokens, "--console=read"}, true},
		{"tokens and passwords", []string{"--auth-file", tokens, "--web-config-file", passwords}, true},
		{"for other machines", []string{"--http=0.0.0.0:0"}, false},
		{"for other machines, and asked for", []string{"--http=0.0.0.0:0", "--console=read"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, address := servertest.Monitored(t, tt.args...)
			address = strings.Replace(address, "[::]", "127.0.0.1", 1)
			address = strings.Replace(address, "0.0.0.0", "127.0.0.1", 1)
			status, page := visit(t, http.MethodGet, address+"/", "prometheus", "secret", nil)
			if is := strings.Contains(page, "<title>Overview"); status != http.StatusOK || is != tt.want || !is && page != index {
				t.Errorf("%d %s", status, page)
			}
			warned := strings.Contains(strings.Join(s.Log(), "\n"), "the console shows jobs to everybody")
			if want := strings.HasSuffix(tt.name, "asked for"); warned != want {
				t.Errorf("warned: %t", warned)
			}
		})
	}
}

func TestTheConsoleAnswersToItsOwnNamesOnly(t *testing.T) {
	t.Parallel()
	_, address := servertest.Monitored(t, "--http-host=queue.example")
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{u.Host: 200, "localhost:" + u.Port(): 200, "queue.example": 200, hostname: 200, "evil.example": http.StatusMisdirectedRequest} {
		for path, want := range map[string]int{"/": want, "/api/v1/stats": want, "/metrics": want, "/healthz": 200} {
			req, err := http.NewRequest(http.MethodGet, address+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			if status, _ := servertest.Do(t, &http.Client{}, req); status != want {
				t.Errorf("%s of %s: %d", path, host, status)
			}
		}
	}
}

func TestAConsoleThatWritesForAnybodyDoesNotStart(t *testing.T) {
	t.Parallel()
	open := filepath.Join(t.TempDir(), "web.yml")
	servertest.WriteAuthFile(t, open, "rate_limit: {burst: 5, interval: 1s}\n")
	scrapes := filepath.Join(t.TempDir(), "scrapes.yml")
	alone, _, _ := strings.Cut(webConfig, "  ann:")
	servertest.WriteAuthFile(t, scrapes, alone)
	nobody := "trellisd: --console=write: nobody whom " + scrapes + " names may write; add a name, or give one of those to --console-writers"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--web-config-file", scrapes}, nobody},
		{[]string{"--web-config-file", scrapes, "--console-writers=ann"}, nobody},
		{nil, "trellisd: --console=write lets people delete jobs, and needs to know who they are: give --web-config-file with basic_auth_users too"},
		{[]string{"--web-config-file", open}, "trellisd: --console=write lets people delete jobs, and needs to know who they are: name them in " + open +
			", under basic_auth_users, or have it require certificates"},
	} {
		p := servertest.Launch(t, append([]string{"-l127.0.0.1", "-p0", "--http=127.0.0.1:0", "--console=write"}, tt.args...)...)
		if code := p.Wait(); code != servertest.ExitUsage {
			t.Errorf("%s: exit code %d", tt.args, code)
		}
		if log := p.Log(); len(log) != 1 || log[0] != tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.args, log, tt.want)
		}
	}
}
