package web

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// start serves cfg on a port of its own and returns the server's URL.
func start(t *testing.T, cfg Config) string {
	t.Helper()
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewPedanticRegistry()
	}
	if cfg.Ready == nil {
		cfg.Ready = new(Readiness)
	}
	cfg.Log = slog.New(slog.DiscardHandler)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(cfg)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Errorf("shutting down: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return "http://" + l.Addr().String()
}

func get(t *testing.T, url string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func TestHealthIsThatOfTheProcessAndReadinessThatOfTheService(t *testing.T) {
	var ready Readiness
	url := start(t, Config{Ready: &ready})
	check := func(path string, status int, text string) {
		t.Helper()
		if res, body := get(t, url+path); res.StatusCode != status || body != text {
			t.Errorf("%s: %d %q, want %d %q", path, res.StatusCode, body, status, text)
		}
	}
	check("/healthz", 200, "ok\n")
	check("/readyz", 503, "starting\n")
	ready.ReadyUnless(func() error { return nil })
	check("/readyz", 200, "ok\n")
	ready.NotReady("draining")
	check("/healthz", 200, "ok\n")
	check("/readyz", 503, "draining\n")
}

func TestMetricsComeInTheFormatThatTheClientWants(t *testing.T) {
	url := start(t, Config{}) + "/metrics"
	res, body := get(t, url)
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") || !strings.Contains(body, "promhttp_metric_handler_requests_total") {
		t.Errorf("%s:\n%s", res.Header.Get("Content-Type"), body)
	}
	for _, tt := range []struct{ accept, want string }{
		{"application/openmetrics-text;version=1.0.0", "application/openmetrics-text"},
		{"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", "application/vnd.google.protobuf"},
	} {
		res, _ = get(t, url, "Accept", tt.accept)
		if got := res.Header.Get("Content-Type"); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %s", tt.accept, got)
		}
	}
	res, body = get(t, url, "Accept-Encoding", "gzip")
	if res.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("not compressed: %v", res.Header)
	}
	z, err := gzip.NewReader(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(z); err != nil || !strings.Contains(string(b), "promhttp_") {
		t.Errorf("%v:\n%s", err, b)
	}
}

// gate is a collector that says when it is asked and waits until it may go on.
type gate struct{ asked, open chan struct{} }

func (g gate) Describe(chan<- *prometheus.Desc) {}
func (g gate) Collect(chan<- prometheus.Metric) {
	g.asked <- struct{}{}
	<-g.open
}

func TestScrapesBeyondTheBoundAreRefusedAtOnce(t *testing.T) {
	g := gate{make(chan struct{}), make(chan struct{})}
	r := prometheus.NewRegistry()
	r.MustRegister(g)
	url := start(t, Config{Metrics: r})
	done := make(chan int, parallelScrapes)
	for range parallelScrapes {
		go func() {
			res, err := http.Get(url + "/metrics")
			if err != nil {
				done <- 0
				return
			}
			res.Body.Close()
			done <- res.StatusCode
		}()
	}
	for range parallelScrapes {
		<-g.asked
	}
	if res, body := get(t, url+"/metrics"); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if res, _ := get(t, url+"/healthz"); res.StatusCode != http.StatusOK {
		t.Errorf("healthz: %d", res.StatusCode)
	}
	close(g.open)
	for range parallelScrapes {
		if status := <-done; status != http.StatusOK {
			t.Errorf("a scrape within the bound: %d", status)
		}
	}
}

func TestConnectionsBeyondTheBoundAreClosed(t *testing.T) {
	url := start(t, Config{})
	// once makes a request on a connection of its own, which it leaves open.
	once := func() (*http.Transport, error) {
		tr := new(http.Transport)
		t.Cleanup(tr.CloseIdleConnections)
		res, err := (&http.Client{Transport: tr}).Get(url + "/healthz")
		if err != nil {
			return tr, err
		}
		_, err = io.Copy(io.Discard, res.Body)
		return tr, errors.Join(err, res.Body.Close())
	}
	var last *http.Transport
	for i := range maxConnections {
		var err error
		if last, err = once(); err != nil {
			t.Fatalf("connection %d: %v", i+1, err)
		}
	}
	for range 3 {
		if _, err := once(); err == nil {
			t.Error("one more was answered")
		}
	}
	last.CloseIdleConnections()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		_, err := once()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("there is no room although a connection was closed: %v", err)
		}
	}
}

func TestProfilesAreServedOnlyOnDemand(t *testing.T) {
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
		if res, _ := get(t, start(t, Config{})+path); res.StatusCode != http.StatusNotFound {
			t.Errorf("without profiles: %s: %d", path, res.StatusCode)
		}
		if res, body := get(t, start(t, Config{Pprof: true})+path); res.StatusCode != http.StatusOK {
			t.Errorf("with profiles: %s: %d %s", path, res.StatusCode, body)
		}
	}
}

func TestTheIndexNamesWhatThereIs(t *testing.T) {
	var ready Readiness
	ready.ReadyUnless(func() error { return nil })
	url := start(t, Config{Pprof: true, Ready: &ready})
	_, index := get(t, url)
	for path := range strings.Lines(index) {
		if res, _ := get(t, url+strings.TrimSpace(path)); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	if res, _ := get(t, url+"/nosuch"); res.StatusCode != http.StatusNotFound {
		t.Errorf("/nosuch: %d", res.StatusCode)
	}
	res, err := http.Post(url+"/metrics", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST /metrics: %d", res.StatusCode)
	}
}

func TestTheConsoleHasWhatNobodyElseHas(t *testing.T) {
	url := start(t, Config{Pprof: true, Console: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusTeapot, r.URL.Path)
	})})
	for path, own := range map[string]bool{
		"/": true, "/tubes": true, "/api/v1/stats": true, "/nosuch": true,
		"/metrics": false, "/healthz": false, "/readyz": false, "/debug/pprof/": false,
	} {
		if res, _ := get(t, url+path); (res.StatusCode == http.StatusTeapot) != own {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
}
