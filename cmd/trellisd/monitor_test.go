package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// monitored starts trellisd with its HTTP side on a free port, and returns that
// side's URL.
func monitored(t testing.TB, args ...string) (s *server, url string) {
	t.Helper()
	s = start(t, append([]string{"--http=127.0.0.1:0"}, args...)...)
	for _, line := range s.log() {
		var record struct{ Msg, Addr string }
		if json.Unmarshal([]byte(line), &record) == nil && record.Msg == "listening for HTTP" {
			return s, "http://" + record.Addr
		}
	}
	t.Fatal("the server does not say where its HTTP side listens")
	return nil, ""
}

func httpGet(t testing.TB, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return httpDo(t, &http.Client{}, req)
}

// scrape returns the metrics. The server gives up a scrape that takes too long, as it may where
// others have the processors: then there is another.
func scrape(t testing.TB, url string) string {
	t.Helper()
	for end := time.Now().Add(3 * patience); ; {
		status, body := httpGet(t, url+"/metrics")
		if status == http.StatusOK {
			return body
		}
		if status != http.StatusServiceUnavailable || time.Now().After(end) {
			t.Fatalf("%d %s", status, body)
		}
	}
}

// httpDo sends a request, and returns the whole answer. No connection stays open. The server
// ends a connection that takes too long, as it may where others have the processors: then
// the request is sent again, for as a rule it was not read.
func httpDo(t testing.TB, c *http.Client, req *http.Request) (status int, body string) {
	t.Helper()
	c.Timeout = patience
	defer c.CloseIdleConnections()
	for end := time.Now().Add(3 * patience); ; {
		status, body, err := httpOnce(c, req)
		if err == nil {
			return status, body
		}
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
		if !ended || time.Now().After(end) {
			t.Fatal(err)
		}
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func httpOnce(c *http.Client, req *http.Request) (status int, body string, err error) {
	res, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

func TestReadinessFollowsDrainModeAndHealthDoesNot(t *testing.T) {
	t.Parallel()
	s, url := monitored(t)
	if status, body := httpGet(t, url+"/readyz"); status != http.StatusOK {
		t.Errorf("ready: %d %s", status, body)
	}
	s.signal(syscall.SIGUSR1)
	s.waitText("drain mode")
	if status, body := httpGet(t, url+"/readyz"); status != http.StatusServiceUnavailable || body != "draining\n" {
		t.Errorf("draining: %d %s", status, body)
	}
	if status, body := httpGet(t, url+"/healthz"); status != http.StatusOK {
		t.Errorf("alive: %d %s", status, body)
	}
	if body := scrape(t, url); !strings.Contains(body, "\nbeanstalkd_draining 1\n") {
		t.Errorf("the metrics do not say that it drains")
	}
	c := s.dial(0)
	c.send("undrain")
	c.want("NOT_DRAINING")
	if status, body := httpGet(t, url+"/readyz"); status != http.StatusOK {
		t.Errorf("not draining any more: %d %s", status, body)
	}
	c.send("drain")
	c.want("DRAINING")
	if status, body := httpGet(t, url+"/readyz"); status != http.StatusServiceUnavailable || body != "draining\n" {
		t.Errorf("a client has drained it: %d %s", status, body)
	}
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAScrapeIsNoCommandAndNoConnection(t *testing.T) {
	t.Parallel()
	s, url := monitored(t)
	c := s.dial(0)
	c.send("put 1 0 60 1", "x")
	c.want("INSERTED 1")
	stats := func() (kept []string) {
		c.send("stats")
		line, err := c.in.ReadString('\n')
		for err == nil && line != "\r\n" {
			if !strings.HasPrefix(line, "OK ") && !strings.HasPrefix(line, "rusage-") && !strings.HasPrefix(line, "uptime") &&
				!strings.HasPrefix(line, "cmd-stats:") {
				kept = append(kept, line)
			}
			line, err = c.in.ReadString('\n')
		}
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	before := stats()
	for range 3 {
		scrape(t, url)
	}
	if after := stats(); strings.Join(after, "") != strings.Join(before, "") {
		t.Errorf("before:\n%safter:\n%s", strings.Join(before, ""), strings.Join(after, ""))
	}
}

func TestMetricsFlagsBoundTubesAndAddOldNames(t *testing.T) {
	t.Parallel()
	s, url := monitored(t, "--metrics-tubes=2", "--metrics-legacy")
	c := s.dial(0)
	c.send("use big", "put 1 0 60 1", "x", "put 1 0 60 1", "x", "use small", "put 1 0 60 1", "x")
	c.want("USING big", "INSERTED 1", "INSERTED 2", "USING small", "INSERTED 3")
	body := scrape(t, url)
	for _, want := range []string{
		`beanstalkd_tube_current_jobs{state="ready",tube="big"} 2`,
		`beanstalkd_tube_current_jobs{state="ready",tube="default"} 0`,
		`beanstalkd_tubes_folded 1`,
		`beanstalkd_other_tubes_current_jobs{state="ready"} 1`,
		`current_jobs_ready 3`,
		`binlog_max_size 1.048576e+07`,
		`tube_current_jobs_ready{tube="big"} 2`,
	} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("not shown: %s", want)
		}
	}
	if strings.Contains(body, "small") {
		t.Errorf("a third tube is shown")
	}
}

func TestProfilesNeedTheirFlag(t *testing.T) {
	t.Parallel()
	_, url := monitored(t)
	if status, _ := httpGet(t, url+"/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("without --pprof: %d", status)
	}
	_, url = monitored(t, "--pprof")
	if status, _ := httpGet(t, url+"/debug/pprof/goroutine?debug=1"); status != http.StatusOK {
		t.Errorf("with --pprof: %d", status)
	}
}

func TestASlowScrapeDoesNotHoldUpTheStop(t *testing.T) {
	t.Parallel()
	s, url := monitored(t)
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\n"); err != nil { // and no more
		t.Fatal(err)
	}
	begun := time.Now()
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d after %v", code, time.Since(begun))
	}
}
