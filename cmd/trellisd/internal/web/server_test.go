package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
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
	return serve(t, New(cfg))
}

// serve starts a server on a port of its own and returns its URL.
func serve(t *testing.T, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // nobody waits for requests that never get complete
		if err := s.Shutdown(ctx); err != nil && !errors.Is(err, context.Canceled) {
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
	check("/leaderz", 503, "draining\n")
}

func TestAMemberThatDoesNotLeadMayBeReady(t *testing.T) {
	var ready, leads Readiness
	ready.ReadyUnless(func() error { return nil })
	leads.NotReady("standby")
	url := start(t, Config{Ready: &ready, Leads: &leads})
	for path, want := range map[string]int{"/readyz": http.StatusOK, "/leaderz": http.StatusServiceUnavailable} {
		if res, body := get(t, url+path); res.StatusCode != want {
			t.Errorf("%s: %d %q", path, res.StatusCode, body)
		}
	}
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

// once makes a request on a connection of its own, which it leaves open.
func once(t *testing.T, url string) error { return onceBy(t, new(http.Transport), url) }

func onceBy(t *testing.T, tr *http.Transport, url string) error {
	t.Cleanup(tr.CloseIdleConnections)
	res, err := (&http.Client{Transport: tr}).Get(url)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return errors.Join(err, res.Body.Close())
}

// inTime tries until there is no error.
func inTime(t *testing.T, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestConnectionsThatAreIdleShutNobodyOut(t *testing.T) {
	dir := t.TempDir()
	pool := certify(t, dir)
	file := write(t, filepath.Join(dir, "web.yml"), "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n")
	plain, secure := start(t, Config{}), strings.Replace(start(t, Config{Protection: open(t, file)}), "http:", "https:", 1)
	for name, tt := range map[string]struct {
		url       string
		transport *http.Transport
	}{
		"without TLS": {url: plain, transport: new(http.Transport)},
		"HTTP/1":      {url: secure, transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}},
		"HTTP/2":      {url: secure, transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}},
	} {
		t.Run(name, func(t *testing.T) {
			for range maxConnections + 10 {
				// A connection is idle a moment after its client has had the answer.
				inTime(t, func() error { return onceBy(t, tt.transport.Clone(), tt.url+"/healthz") })
			}
		})
	}
}

func TestRequestsForHealthHavePlacesOfTheirOwn(t *testing.T) {
	var ready Readiness
	ready.ReadyUnless(func() error { return nil })
	asked, answered := make(chan struct{}), make(chan struct{})
	url := start(t, Config{Ready: &ready, Console: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-answered
		answer(w, http.StatusOK, "ok")
	})})
	ended := make(chan error, maxRequests)
	for range maxRequests {
		go func() { ended <- once(t, url+"/slow") }()
	}
	for range maxRequests {
		select {
		case <-asked:
		case err := <-ended:
			t.Fatalf("a request within the bound: %v", err)
		}
	}
	for range maxConnections {
		// On connections that stay open, and give way to each other.
		for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/metrics": http.StatusServiceUnavailable} {
			tr := new(http.Transport)
			t.Cleanup(tr.CloseIdleConnections)
			if status := as(t, &http.Client{Transport: tr}, url+path, "", ""); status != want {
				t.Errorf("%s: %d", path, status)
			}
		}
	}
	close(answered)
	for range maxRequests {
		if err := <-ended; err != nil {
			t.Errorf("a request within the bound: %v", err)
		}
	}
	inTime(t, func() error {
		res, err := http.Get(url + "/metrics")
		if err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			err = errors.New(res.Status)
		}
		return errors.Join(err, res.Body.Close())
	})
}

// A request that is under way keeps its connection, however many there are to come.
func TestTheConnectionOfARequestDoesNotGiveWay(t *testing.T) {
	dir := t.TempDir()
	pool := certify(t, dir)
	file := write(t, filepath.Join(dir, "web.yml"), "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n")
	for _, http2 := range []bool{false, true} {
		asked, answered := make(chan struct{}), make(chan struct{})
		url := start(t, Config{Protection: open(t, file), Console: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}
			<-answered
			answer(w, http.StatusOK, r.Proto)
		})})
		ended := make(chan error, 1)
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: http2}
		go func() { ended <- onceBy(t, tr, strings.Replace(url, "http:", "https:", 1)+"/slow") }()
		select {
		case <-asked:
		case err := <-ended:
			t.Fatal(err)
		}
		for range 2 * maxConnections {
			send(t, url, "G")
		}
		// Those have been accepted when one more has been answered.
		inTime(t, func() error {
			return onceBy(t, &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, strings.Replace(url, "http:", "https:", 1)+"/healthz")
		})
		close(answered)
		if err := <-ended; err != nil {
			t.Errorf("HTTP/2 %t: %v", http2, err)
		}
	}
}

// send opens a connection, sends a request and leaves it there.
func send(t *testing.T, url, request string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if _, err := io.WriteString(nc, request); err != nil {
		t.Fatal(err)
	}
	return nc
}

// slow are requests whose bodies never come.
var slow = []string{
	"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
	"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
	"HEAD / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n",
	"DELETE /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
	"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
}

func TestWhatIsReadIsAnsweredWithoutWaitingForABody(t *testing.T) {
	s := New(Config{Metrics: prometheus.NewPedanticRegistry(), Ready: new(Readiness), Log: slog.New(slog.DiscardHandler)})
	s.http.ReadTimeout, s.http.WriteTimeout = 0, 0 // to wait would take for ever
	url := serve(t, s)
	for _, request := range slow {
		nc := send(t, url, request)
		if err := nc.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(nc)
		if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 ") || !strings.Contains(string(b), "Connection: close") {
			t.Errorf("%q: %v\n%.200s", request, err, b)
		}
	}
}

func TestSlowRequestsKeepNoProbeOut(t *testing.T) {
	for _, request := range append(slices.Clone(slow),
		"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
		"GET /metrics HTTP/1.1\r\nHost: localhost\r\n",
		"G",
	) {
		url := start(t, Config{})
		for range maxConnections {
			send(t, url, request)
		}
		for range 3 {
			if err := once(t, url+"/healthz"); err != nil {
				t.Errorf("beside %q: %v", request, err)
			}
		}
	}
}

// connection only reports whether it was closed.
type connection struct {
	net.Conn
	closed bool
}

func (c *connection) Close() error {
	c.closed = true
	return nil
}

func TestConnectionsThatNeverAskGiveWay(t *testing.T) {
	var s connections
	silent := make([]*connection, 2*maxConnections)
	for i := range silent {
		silent[i] = new(connection)
		s.changed(silent[i], http.StateNew)
	}
	for i, c := range silent {
		if c.closed != (i < maxConnections) {
			t.Errorf("connection %d: closed: %t", i, c.closed)
		}
	}
}

func TestTheConnectionThatWasIdleLongestGivesWay(t *testing.T) {
	var s connections
	all := make([]*connection, maxConnections)
	for i := range all {
		all[i] = new(connection)
		s.changed(all[i], http.StateNew)
		s.changed(all[i], http.StateActive)
	}
	for i := range maxRequests {
		if !s.begin(all[i]) {
			t.Fatalf("request %d is one too many", i)
		}
	}
	if s.begin(all[maxRequests]) {
		t.Fatal("there is no bound")
	}
	for _, i := range []int{7, 3, 5} {
		s.end(all[i])
	}
	s.changed(all[3], http.StateActive)
	s.changed(all[3], http.StateIdle) // behind the others now
	var open []*connection
	more := func(gives *connection) {
		t.Helper()
		c := new(connection)
		open = append(open, c)
		s.changed(c, http.StateNew)
		for i, o := range append(all, open...) {
			if o.closed != (o == gives) {
				t.Errorf("connection %d: closed: %t", i, o.closed)
			}
		}
		gives.closed = false
		s.changed(gives, http.StateIdle)   // had a request at that moment
		s.changed(gives, http.StateClosed) // as the server sees it
	}
	for i := maxRequests; i < maxConnections; i++ {
		more(all[i]) // which have asked nothing, or for health
	}
	more(all[7])
	more(all[5])
	more(all[3])
	more(open[0])
	s.end(all[0])
	s.changed(all[0], http.StateClosed)
	first := new(connection)
	s.changed(first, http.StateNew)
	if first.closed || open[1].closed {
		t.Error("closed although there is room")
	}
	// HTTP/2 has several requests on a connection.
	for range 2 {
		if !s.begin(open[1]) {
			t.Fatal("there is room for two requests")
		}
	}
	s.end(open[1])
	more(open[2])
}

func TestFailedHandshakesAreThrottledAndOtherTroubleIsNot(t *testing.T) {
	var b bytes.Buffer
	l := log.New(&errorLog{log: slog.New(slog.NewTextHandler(&b, nil))}, "", 0)
	for range 3 {
		l.Print("http: TLS handshake error from 192.0.2.1:5: EOF")
		l.Print("http2: server connection error from 192.0.2.1:5: PROTOCOL_ERROR")
		l.Print("http: panic serving 192.0.2.1:5: boom\na stack")
	}
	for text, want := range map[string]int{"level=WARN": 4, "TLS handshake error": 1, "http2": 0, `boom\na stack"`: 3} {
		if got := strings.Count(b.String(), text); got != want {
			t.Errorf("%d lines with %q, want %d:\n%s", got, text, want, b.String())
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

// seconds answers with how long a profile is to take.
func seconds(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusOK, r.FormValue("seconds"))
}

func TestProfilesAndTracesTakeAMinuteAtMost(t *testing.T) {
	for asked, want := range map[string]string{
		"": "", "0": "0", "1.5": "1.5", "60": "60", "61": "60", "86400": "60", "1e300": "60", "Inf": "60", "NaN": "60", "-1": "-1", "x": "x",
		"0x1p40": "60", "99999999999999999999": "60",
	} {
		r := httptest.NewRequest(http.MethodGet, "/debug/pprof/trace?debug=1&seconds="+asked, nil)
		w := httptest.NewRecorder()
		shortened(seconds).ServeHTTP(w, r)
		if got := strings.TrimSpace(w.Body.String()); got != want {
			t.Errorf("%q seconds: %q", asked, got)
		}
	}
}

func TestOnlyHealthIsToldUnderAnyName(t *testing.T) {
	url := start(t, Config{Pprof: true, Hosts: []string{"queue.example:11380"}})
	for host, own := range map[string]bool{"127.0.0.1": true, "localhost:1": true, "Queue.Example": true, "evil.example": false, "queue.example.evil": false} {
		for path, any := range map[string]bool{"/healthz": true, "/metrics": false, "/debug/pprof/cmdline": false, "/debug/pprof/": false, "/": false} {
			req, err := http.NewRequest(http.MethodGet, url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			want := http.StatusOK
			if !own && !any {
				want = http.StatusMisdirectedRequest
			}
			if res.StatusCode != want {
				t.Errorf("%s of %s: %s", path, host, res.Status)
			}
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
		"/metrics": false, "/healthz": false, "/readyz": false, "/leaderz": false, "/debug/pprof/": false,
	} {
		if res, _ := get(t, url+path); (res.StatusCode == http.StatusTeapot) != own {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
}
