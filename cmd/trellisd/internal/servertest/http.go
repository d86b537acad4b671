package servertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Monitored starts trellisd with its HTTP side on a free port, and returns that
// side's URL.
func Monitored(t testing.TB, args ...string) (s *Server, url string) {
	t.Helper()
	s = Start(t, append([]string{"--http=127.0.0.1:0"}, args...)...)
	for _, line := range s.Log() {
		var record struct{ Msg, Addr string }
		if json.Unmarshal([]byte(line), &record) == nil && record.Msg == "listening for HTTP" {
			return s, "http://" + record.Addr
		}
	}
	t.Fatal("the server does not say where its HTTP side listens")
	return nil, ""
}

// Get is Do for a GET.
func Get(t testing.TB, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Do(t, &http.Client{}, req)
}

// Scrape returns the metrics. The server gives up a scrape that takes too long, as it may where
// others have the processors: then there is another.
func Scrape(t testing.TB, url string) string {
	t.Helper()
	for end := time.Now().Add(3 * Patience); ; {
		status, body := Get(t, url+"/metrics")
		if status == http.StatusOK {
			return body
		}
		if status != http.StatusServiceUnavailable || time.Now().After(end) {
			t.Fatalf("%d %s", status, body)
		}
	}
}

// Do sends a request, and returns the whole answer. No connection stays open. The server
// ends a connection that takes too long, as it may where others have the processors: then
// the request is sent again, for as a rule it was not read.
func Do(t testing.TB, c *http.Client, req *http.Request) (status int, body string) {
	t.Helper()
	c.Timeout = Patience
	defer c.CloseIdleConnections()
	for end := time.Now().Add(3 * Patience); ; {
		status, body, err := httpOnce(c, req)
		if err == nil {
			return status, body
		}
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
			errors.Is(err, syscall.EPIPE)
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

// GaugeOf is the value of a metric, with its labels as they are written.
func GaugeOf(t *testing.T, url, name string) (v float64) {
	t.Helper()
	body := Scrape(t, url)
	_, rest, _ := strings.Cut(body, "\n"+name+" ")
	if _, err := fmt.Sscan(rest, &v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}
