package process

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

// accountOf is what list-accounts says of an account to a client, "" if that is nothing.
func accountOf(c *servertest.Client, name string) string {
	c.T.Helper()
	_, text, _ := strings.Cut(c.Data("list-accounts"), fmt.Sprintf("- name: %q\n", name))
	text, _, _ = strings.Cut(text, "- name:")
	return text
}

func TestAccountsHoldOverARestartAndChangeWithTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	app := servertest.TokenLine("app", "app", "all", "* account acme")
	others := servertest.TokenLine("other", "other", "put,work,read", "*") + servertest.TokenLine("root", "root", "read,admin", "*")
	account := func(limits string) string { return "account acme tubes acme/* " + limits + "\n" }
	path := servertest.AuthFile(t, account("max-jobs 2 max-connections 2"), app, others)
	args := []string{"-b" + dir, "--auth-file", path}
	s := servertest.Start(t, args...)
	as := func(token string) *servertest.Client {
		c := s.Dial(0)
		c.Send("auth " + token)
		c.Want("AUTHENTICATED")
		return c
	}
	c, other := as("app"), as("other")
	other.Send("use acme/a", "put 0 0 9 1", "x") // whoever has put it
	other.Want("USING acme/a", "INSERTED 1")
	c.Send("use acme/b", "put 0 0 9 1 idp:k:1000", "x", "put 0 0 9 1", "x", "use elsewhere", "put 0 0 9 1", "x", "delete 2")
	c.Want("USING acme/b", "INSERTED 2", "OUT_OF_MEMORY", "USING elsewhere", "INSERTED 3", "DELETED")
	for _, want := range []string{"patterns: \"acme/*\"\n", " jobs: 1\n", "max-jobs: 2\n", "refused-jobs: 1\n", " keys: 1\n", " tubes: 1\n", " connections: 1\n"} {
		for who, client := range map[string]*servertest.Client{"a client of the account": c, "an administrator": as("root")} {
			if text := accountOf(client, "acme"); !strings.Contains(text, want) {
				t.Errorf("%s is shown %q, not %q", who, text, want)
			}
		}
	}
	if text := accountOf(other, "acme"); text != "" {
		t.Errorf("a stranger is shown %q", text)
	}
	as("app")
	refused := s.Dial(0)
	refused.Send("auth app")
	refused.Want("OUT_OF_MEMORY")
	refused.WantEOF()

	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	s = servertest.Start(t, args...)
	c = as("app")
	for _, want := range []string{" jobs: 1\n", " keys: 1\n", " tubes: 1\n", " connections: 1\n"} {
		if text := accountOf(c, "acme"); !strings.Contains(text, want) {
			t.Errorf("after a restart it holds %q, not %q", text, want)
		}
	}
	c.Send("use acme/b", "put 0 0 9 1", "x", "put 0 0 9 1", "x")
	c.Want("USING acme/b", "INSERTED 4", "OUT_OF_MEMORY")

	// The file changes: limits, without the client's noticing, and then tubes.
	servertest.WriteAuthFile(t, path, account("max-jobs 3"), app, others)
	s.Signal(syscall.SIGHUP)
	s.WaitText("a changed file was loaded")
	c.Send("put 0 0 9 1", "x", "put 0 0 9 1", "x")
	c.Want("INSERTED 5", "OUT_OF_MEMORY")
	// While tubes go over one by one, the account never holds as many jobs as in the end.
	c.Send("use elsewhere", "put 0 0 9 1", "x", "put 0 0 9 1", "x", "put 0 0 9 1", "x", "use acme/b")
	c.Want("USING elsewhere", "INSERTED 6", "INSERTED 7", "INSERTED 8", "USING acme/b")
	servertest.WriteAuthFile(t, path, "account acme tubes elsewhere max-jobs 5\n", app, others)
	s.Signal(syscall.SIGHUP)
	root := as("root")
	for end := time.Now().Add(servertest.Patience); !strings.Contains(accountOf(root, "acme"), " jobs: 4\n"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it holds %q", accountOf(root, "acme"))
		}
	}
	c.Send("put 0 0 9 1", "x", "use elsewhere", "put 0 0 9 1", "x", "put 0 0 9 1", "x")
	c.Want("INSERTED 9", "USING elsewhere", "INSERTED 10", "OUT_OF_MEMORY")
}
