package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// accountOf is what list-accounts says of an account to a client, "" if that is nothing.
func (c *client) accountOf(name string) string {
	c.t.Helper()
	_, text, _ := strings.Cut(c.data("list-accounts"), fmt.Sprintf("- name: %q\n", name))
	text, _, _ = strings.Cut(text, "- name:")
	return text
}

func TestAccountsHoldOverARestartAndChangeWithTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	app := tokenLine("app", "app", "all", "* account acme")
	others := tokenLine("other", "other", "put,work,read", "*") + tokenLine("root", "root", "read,admin", "*")
	account := func(limits string) string { return "account acme tubes acme/* " + limits + "\n" }
	path := authFile(t, account("max-jobs 2 max-connections 2"), app, others)
	args := []string{"-b" + dir, "--auth-file", path}
	s := start(t, args...)
	as := func(token string) *client {
		c := s.dial(0)
		c.send("auth " + token)
		c.want("AUTHENTICATED")
		return c
	}
	c, other := as("app"), as("other")
	other.send("use acme/a", "put 0 0 9 1", "x") // whoever has put it
	other.want("USING acme/a", "INSERTED 1")
	c.send("use acme/b", "put 0 0 9 1 idp:k:1000", "x", "put 0 0 9 1", "x", "use elsewhere", "put 0 0 9 1", "x", "delete 2")
	c.want("USING acme/b", "INSERTED 2", "OUT_OF_MEMORY", "USING elsewhere", "INSERTED 3", "DELETED")
	for _, want := range []string{"patterns: \"acme/*\"\n", " jobs: 1\n", "max-jobs: 2\n", "refused-jobs: 1\n", " keys: 1\n", " tubes: 1\n", " connections: 1\n"} {
		for who, client := range map[string]*client{"a client of the account": c, "an administrator": as("root")} {
			if text := client.accountOf("acme"); !strings.Contains(text, want) {
				t.Errorf("%s is shown %q, not %q", who, text, want)
			}
		}
	}
	if text := other.accountOf("acme"); text != "" {
		t.Errorf("a stranger is shown %q", text)
	}
	as("app")
	refused := s.dial(0)
	refused.send("auth app")
	refused.want("OUT_OF_MEMORY")
	refused.wantEOF()

	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	s = start(t, args...)
	c = as("app")
	for _, want := range []string{" jobs: 1\n", " keys: 1\n", " tubes: 1\n", " connections: 1\n"} {
		if text := c.accountOf("acme"); !strings.Contains(text, want) {
			t.Errorf("after a restart it holds %q, not %q", text, want)
		}
	}
	c.send("use acme/b", "put 0 0 9 1", "x", "put 0 0 9 1", "x")
	c.want("USING acme/b", "INSERTED 4", "OUT_OF_MEMORY")

	// The file changes: limits, without the client's noticing, and then tubes.
	writeAuthFile(t, path, account("max-jobs 3"), app, others)
	s.signal(syscall.SIGHUP)
	s.waitText("a changed file was loaded")
	c.send("put 0 0 9 1", "x", "put 0 0 9 1", "x")
	c.want("INSERTED 5", "OUT_OF_MEMORY")
	// While tubes go over one by one, the account never holds as many jobs as in the end.
	c.send("use elsewhere", "put 0 0 9 1", "x", "put 0 0 9 1", "x", "put 0 0 9 1", "x", "use acme/b")
	c.want("USING elsewhere", "INSERTED 6", "INSERTED 7", "INSERTED 8", "USING acme/b")
	writeAuthFile(t, path, "account acme tubes elsewhere max-jobs 5\n", app, others)
	s.signal(syscall.SIGHUP)
	root := as("root")
	for end := time.Now().Add(patience); !strings.Contains(root.accountOf("acme"), " jobs: 4\n"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it holds %q", root.accountOf("acme"))
		}
	}
	c.send("put 0 0 9 1", "x", "use elsewhere", "put 0 0 9 1", "x", "put 0 0 9 1", "x")
	c.want("INSERTED 9", "USING elsewhere", "INSERTED 10", "OUT_OF_MEMORY")
}
