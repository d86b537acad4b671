package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
)

// fakeStats answers every connection to a listener as a server that only knows its
// statistics.
func fakeStats(t *testing.T, ready string) string {
	t.Helper()
	return serveEach(t, listen(t), func(nc net.Conn) {
		for in := bufio.NewScanner(nc); in.Scan(); {
			answer := "UNKNOWN_COMMAND\r\n"
			switch {
			case in.Text() == "stats":
				answer = "OK 29" + "\r\n---\ncurrent-jobs-ready: " + ready + "\n\r\n"
			case in.Text() == "list-tube-used":
				answer = "USING default\r\n"
			case in.Text() == "list-tubes":
				answer = "OK 4\r\n---\n\r\n"
			}
			if _, err := io.WriteString(nc, answer); err != nil {
				return
			}
		}
	})
}

// runConsole runs the command until the test ends, and returns the address that it prints.
func runConsole(t *testing.T, args ...string) (address string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	cmd := patientCommand()
	cmd.SetArgs(append([]string{"console"}, args...))
	cmd.SetOut(in)
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		_ = in.CloseWithError(io.EOF)
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the console ends: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no address: %v", err)
	}
	return strings.TrimSpace(line)
}

func fetch(t *testing.T, c *http.Client, url string) (status int, text string) {
	t.Helper()
	res, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestTheConsoleShowsServersToWhoHasTheToken(t *testing.T) {
	a, b := fakeStats(t, "1111"), fakeStats(t, "2222")
	address := runConsole(t, "--server", a, "--server", b)
	site, _, _ := strings.Cut(address, "?")
	bare := &http.Client{Timeout: patience}
	if status, _ := fetch(t, bare, site); status != http.StatusUnauthorized {
		t.Errorf("without the token: %d", status)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Timeout: patience, Jar: jar}
	status, text := fetch(t, c, address)
	if status != http.StatusOK || !strings.Contains(text, "1,111") || !strings.Contains(text, b) || !strings.Contains(text, "read-only") {
		t.Errorf("the first server: %d\n%s", status, text)
	}
	if status, text := fetch(t, c, site+"2/"); status != http.StatusOK || !strings.Contains(text, "2,222") {
		t.Errorf("the second server: %d\n%s", status, text)
	}
	res, err := c.PostForm(site+"1/tubes/default/pause", map[string][]string{"seconds": {"1"}})
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("a change of what is read-only: %s", res.Status)
	}
}

func TestTheConsoleIsNotForOtherMachines(t *testing.T) {
	for _, listen := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.org:0", "x"} {
		cmd := newCommand()
		cmd.SetArgs([]string{"console", "--listen", listen})
		err := cmd.ExecuteContext(t.Context())
		if err == nil || exitStatus(err) != exitUsage {
			t.Errorf("%s: %v", listen, err)
		}
	}
}
