package console

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"trellis/cmd/internal/client"
)

// everyPage are the paths of pages and of what the API reads, on what fill puts in.
func everyPage() (paths []string) {
	for _, p := range []string{
		"/", "/tubes", "/tubes/{tube}", "/tubes/{tube}/jobs", "/tubes/{tube}/jobs?q=x", "/jobs/{id}", "/jobs/{id}/body", "/groups/{group}", "/failed", "/connections", "/put", "/server",
	} {
		paths = append(paths, fill.Replace(p))
	}
	for _, e := range apiReads {
		if e.path != "/actions" { // is the console's own
			paths = append(paths, fill.Replace(apiRoot+e.path))
		}
	}
	return paths
}

// TestAServerThatFailsIsSaidToAndIsUsedAgain has servers that die, hang and talk nonsense
// behind a console, and then one that works.
func TestAServerThatFailsIsSaidToAndIsUsedAgain(t *testing.T) {
	endless := strings.Repeat("x", 1<<20)
	servers := map[string]func(nc net.Conn, line string){
		"dies at once":         func(nc net.Conn, _ string) { _ = nc.Close() },
		"dies within a reply":  func(nc net.Conn, _ string) { _, _ = io.WriteString(nc, "OK 500\r\n---\nname: "); _ = nc.Close() },
		"hangs":                func(net.Conn, string) {},
		"hangs within a reply": func(nc net.Conn, _ string) { _, _ = io.WriteString(nc, "OK 500\r\n---\n") },
		"never ends its line":  func(nc net.Conn, _ string) { _, _ = io.WriteString(nc, endless) },
		"announces too much":   func(nc net.Conn, _ string) { _, _ = io.WriteString(nc, "OK 9223372036854775807\r\n") },
		"announces nonsense":   func(nc net.Conn, _ string) { _, _ = io.WriteString(nc, "OK -1\r\n") },
		"talks HTTP":           func(nc net.Conn, _ string) { _, _ = io.WriteString(nc, "HTTP/1.1 400 Bad Request\r\n\r\n") },
		"sends NUL":            func(nc net.Conn, _ string) { _, _ = nc.Write(make([]byte, 4096)) },
		"answers to all the same": func(nc net.Conn, _ string) {
			_, _ = io.WriteString(nc, "RESERVED_BATCH 18446744073709551615\r\n")
		},
	}
	for name, answer := range servers {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, writable)
			r.tagged("a", "grp:g")
			works := r.console.pool.dial
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					nc, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						defer nc.Close()
						for in := bufio.NewScanner(nc); in.Scan(); {
							answer(nc, in.Text())
						}
					}()
				}
			}()
			r.console.pool.dial = func(ctx context.Context) (*client.Conn, error) {
				var d net.Dialer
				nc, err := d.DialContext(ctx, "tcp", l.Addr().String())
				if err != nil {
					return nil, err
				}
				c := client.New(nc, "the server")
				if c.Timeout = time.Minute; strings.HasPrefix(name, "hangs") {
					c.Timeout = 20 * time.Millisecond
				}
				return c, nil
			}
			for _, path := range everyPage() {
				a := r.get(path)
				switch {
				case path == "/" || path == "/server":
					if a.StatusCode != http.StatusOK {
						t.Errorf("%s: %s", path, a.Status)
					}
					wantText(t, a.text, "The server does not answer.")
				case strings.HasSuffix(path, "/body") && name == "announces too much":
					if a.StatusCode != http.StatusRequestEntityTooLarge {
						t.Errorf("%s: %s", path, a.Status)
					}
				case a.StatusCode != http.StatusBadGateway && a.StatusCode != http.StatusGatewayTimeout:
					t.Errorf("%s: %s", path, a.Status)
				}
				if strings.Contains(a.text, "\x00") {
					t.Errorf("%s has a NUL", path)
				}
			}
			for _, ch := range changes {
				a := r.send(http.MethodPost, fill.Replace(ch.path), "application/x-www-form-urlencoded", writes[ch.path], nil)
				if tooLarge := ch.verb == "copy" && name == "announces too much"; tooLarge && a.StatusCode == http.StatusRequestEntityTooLarge {
					continue
				}
				if a.StatusCode != http.StatusBadGateway && a.StatusCode != http.StatusGatewayTimeout {
					t.Errorf("%s: %s", ch.path, a.Status)
				}
				if strings.Contains(plain(a.text), "tries again by itself") || strings.Contains(a.text, "data-retry") {
					t.Errorf("%s would be tried again", ch.path)
				}
			}
			r.console.pool.dial = works
			r.console.table.changed()
			for _, path := range everyPage() {
				for a := r.get(path); a.StatusCode != http.StatusOK; a = r.get(path) {
					if t.Context().Err() != nil || !strings.Contains(path, "tubes") && path != "/failed" {
						t.Fatalf("%s afterwards: %s\n%s", path, a.Status, plain(a.text))
					}
				}
			}
			unchanged(t, r, "a server that fails")
		})
	}
}

// TestAHangingServerLeavesTheRestOfTheConsole lets as many requests wait for a server as may
// be answered at a time.
func TestAHangingServerLeavesTheRestOfTheConsole(t *testing.T) {
	r := newRig(t, nil)
	r.console.pool.dial = func(ctx context.Context) (*client.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ctx, end := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range parallelRequests {
		waiting.Go(func() {
			req := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1/put", nil)
			r.console.ServeHTTP(httptest.NewRecorder(), req)
		})
	}
	for name, a := range assets {
		if got := r.get("/static/" + a.tag + "/" + name); got.StatusCode != http.StatusOK || len(got.text) != len(a.data) {
			t.Errorf("%s: %s", name, got.Status)
		}
	}
	end()
	waiting.Wait()
}

// TestPathsAndMethodsThatAreNotThere asks a listening console for what it does not have.
func TestPathsAndMethodsThatAreNotThere(t *testing.T) {
	r := newRig(t, writable)
	r.tagged("a", "grp:g")
	server := httptest.NewServer(r.console)
	defer server.Close()
	ask := func(method, path string) (int, string, string) {
		t.Helper()
		nc, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		// Not by an HTTP client, which would clean the path.
		fmt.Fprintf(nc, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", method, path)
		res, err := http.ReadResponse(bufio.NewReader(nc), &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%s %.60s: %v", method, path, err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatalf("%s %.60s: %v", method, path, err)
		}
		return res.StatusCode, res.Header.Get("Location"), string(b)
	}
	for _, path := range []string{
		"/tubes/../", "/tubes/../../etc/passwd", "/tubes/%2e%2e/", "/tubes/a%00b", "/tubes/%00", "/tubes/%ff", "/tubes/%0d%0aSet-Cookie:%20a=b", "/tubes/%2f%2fevil.example/x",
		"/tubes/a/../b", "/tubes/a/jobs/..", "/tubes/" + strings.Repeat("a", 201), "/jobs/..", "/jobs/%2e%2e", "/jobs/1%00", "/jobs/0x1", "/jobs/+1", "/jobs/1/", "/jobs/1/body/..",
		"//evil.example/", "///evil.example/x/..", `/\evil.example/`, `/\evil.example/x/..`, "/%5cevil.example", "/static/../templates/layout.html", "/static/x/console.js", "/static/", "/static/%2e%2e/change.go",
		"/api/v1/../../put", "/api/v1", "/.git/config", "/tubes;x=y", "/" + strings.Repeat("a/", 4000),
		"/tubes?q=" + strings.Repeat("q", 8000), "/?done=" + strings.Repeat("9", 8000), "/?" + strings.Repeat("a=b&", 2000), "/tubes?offset=-1", "/tubes?limit=1001", "/tubes?sort=__proto__", "/tubes/a/jobs?after=-1",
		"/tubes/a/jobs?state=constructor", "/tubes?q=%00", "/find?q=%0d%0aX:y",
	} {
		status, to, body := ask(http.MethodGet, path)
		if status >= http.StatusInternalServerError {
			t.Errorf("GET %.60s: %d", path, status)
		}
		if u, err := url.Parse(to); err != nil || u.Host != "" || strings.HasPrefix(u.Path, "//") || strings.ContainsAny(to, "\r\n\\") {
			t.Errorf("GET %.60s leads to %s", path, to)
		}
		if strings.Contains(body, "{{") || strings.Contains(body, "root:") || strings.Contains(body, "package console") {
			t.Errorf("GET %.60s shows a file", path)
		}
	}
	for _, path := range everyPage() {
		get, _, _ := ask(http.MethodGet, path)
		if status, _, body := ask(http.MethodHead, path); status != get || body != "" {
			t.Errorf("HEAD %s: %d and %d bytes, where GET has %d", path, status, len(body), get)
		}
		for _, method := range []string{http.MethodOptions, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodTrace, http.MethodConnect, "BREW"} {
			if status, _, _ := ask(method, path); status != http.StatusMethodNotAllowed && status != http.StatusForbidden && status != http.StatusNotFound {
				t.Errorf("%s %s: %d", method, path, status)
			}
		}
	}
	unchanged(t, r, "all of that")
}

// TestVeryManyPagesAtATime asks for more pages at a time than are answered.
func TestVeryManyPagesAtATime(t *testing.T) {
	r := newRig(t, nil)
	r.tagged("a", "grp:g")
	paths := everyPage()
	var all sync.WaitGroup
	for i := range 400 {
		all.Go(func() {
			path := paths[i%len(paths)]
			if a := r.get(path); a.StatusCode != http.StatusOK && a.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%s: %s", path, a.Status)
			}
		})
	}
	all.Wait()
	r.page("/tubes/a")
	if n := len(r.console.pool.idle); n > maxConns {
		t.Errorf("%d connections", n)
	}
}

func TestAScriptWithoutABrowserMayChangeThings(t *testing.T) {
	r := newRig(t, writable)
	r.put("a", 1, 0, "x")
	a := r.send(http.MethodPost, apiRoot+"/tubes/a/pause", "application/json", `{"seconds":9}`, func(req *http.Request) {
		req.Header.Del("Sec-Fetch-Site") // and no Origin, as curl
	})
	if a.StatusCode != http.StatusOK || r.stat("a", "pause-time-left") == 0 {
		t.Errorf("%s %s", a.Status, a.text)
	}
}
