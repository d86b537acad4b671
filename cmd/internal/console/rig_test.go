package console

import (
	"bytes"
	"context"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
	"trellis/engine"
	"trellis/engine/stats"
	"trellis/reactor"
)

// rig is a server, and a console of it.
type rig struct {
	t       testing.TB
	engine  *engine.Engine
	reactor *reactor.Server
	now     func() engine.Time
	console *Console
	log     *logBuffer
	conn    *client.Conn // of the test's own
}

// logBuffer keeps what is logged.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// rigMaxJob lets a rig have jobs whose bodies a console does not fetch.
const rigMaxJob = 2 * maxBody

func init() {
	requestTime, firstTimeout = time.Minute, time.Minute // a machine that does much else may stop a test for seconds
}

// newRig starts a server and makes a console of it, as change says; nil for a read-only
// one.
func newRig(t testing.TB, change func(*Config)) *rig {
	r := &rig{t: t, log: new(logBuffer)}
	start := time.Now()
	r.now = func() engine.Time { return engine.Time(time.Since(start)) }
	r.engine = engine.New(engine.Config{
		MaxJobSize: rigMaxJob, Start: start,
		Info: engine.Info{PID: 4711, Version: "1.13", ID: "5ed0", Hostname: "queue-1", OS: "#1 SMP", Platform: "x86_64", Usage: func() (u, s time.Duration) { return 0, 0 }},
	})
	var err error
	r.reactor, err = reactor.New(reactor.Config{
		Engine: r.engine, Now: r.now, Loops: 2, MaxJobSize: rigMaxJob, Extensions: true, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = r.reactor.Shutdown(ctx)
	})
	cfg := Config{
		Server: "127.0.0.1:11300", Dial: r.dial, Hosts: []string{"queue.example"},
		Log: slog.New(slog.NewTextHandler(r.log, nil)),
		Who: func(hr *http.Request) (string, bool) {
			user, _, ok := hr.BasicAuth()
			return user, ok
		},
	}
	if change != nil {
		change(&cfg)
	}
	r.console = New(cfg)
	t.Cleanup(r.console.pool.close)
	if r.conn, err = r.dial(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// writable makes a console that may change things.
func writable(cfg *Config) { cfg.Write = true }

func (r *rig) dial(ctx context.Context) (*client.Conn, error) {
	nc, err := r.reactor.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return client.New(nc, "the server"), nil
}

// put puts a job and returns its id.
func (r *rig) put(tube string, pri, delay uint32, body string) uint64 {
	r.t.Helper()
	ctx := r.t.Context()
	if err := r.conn.Use(ctx, tube); err != nil {
		r.t.Fatal(err)
	}
	i, err := r.conn.Put(ctx, &client.NewJob{Pri: pri, Delay: delay, TTR: 600, Body: []byte(body)})
	if err != nil {
		r.t.Fatal(err)
	}
	return i.ID
}

// tagged puts a job that has a tag.
func (r *rig) tagged(tube, tag string) uint64 {
	r.t.Helper()
	ctx := r.t.Context()
	if err := r.conn.Use(ctx, tube); err != nil {
		r.t.Fatal(err)
	}
	i, err := r.conn.Put(ctx, &client.NewJob{Pri: 1, TTR: 600, Tags: []string{tag}, Body: []byte("x")})
	if err != nil {
		r.t.Fatal(err)
	}
	return i.ID
}

// bury puts a job that is buried.
func (r *rig) bury(tube, body string) uint64 {
	r.t.Helper()
	id := r.put(tube, 100, 0, body)
	if _, err := r.conn.ReserveJob(r.t.Context(), id); err != nil {
		r.t.Fatal(err)
	}
	if err := r.conn.Bury(r.t.Context(), id, 100); err != nil {
		r.t.Fatal(err)
	}
	return id
}

// hold puts a job that the test's own connection reserves.
func (r *rig) hold(tube, body string) uint64 {
	r.t.Helper()
	id := r.put(tube, 100, 0, body)
	if _, err := r.conn.ReserveJob(r.t.Context(), id); err != nil {
		r.t.Fatal(err)
	}
	return id
}

// stat is a number in the statistics of a tube, 0 if there is no tube.
func (r *rig) stat(tube, key string) uint64 {
	r.t.Helper()
	f, err := r.conn.StatsTube(r.t.Context(), tube)
	if err != nil && !isGone(err) {
		r.t.Fatal(err)
	}
	return f.Uint(key)
}

// state is that of a job, "" if it is gone.
func (r *rig) state(id uint64) string {
	r.t.Helper()
	f, err := r.conn.StatsJob(r.t.Context(), id)
	if err != nil && !isGone(err) {
		r.t.Fatal(err)
	}
	return f.Text("state")
}

// answer is what a request has got.
type answer struct {
	*http.Response
	text string
}

// send makes a request of a local browser's kind, changed by change.
func (r *rig) send(method, path, kind, body string, change func(*http.Request)) answer {
	r.t.Helper()
	req := httptest.NewRequest(method, "http://127.0.0.1:11380"+path, strings.NewReader(body))
	req.RemoteAddr = "127.0.0.1:5555"
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if method == http.MethodPost {
		req.SetBasicAuth("ann", "secret")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if change != nil {
		change(req)
	}
	w := httptest.NewRecorder()
	r.console.ServeHTTP(w, req)
	res := w.Result()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{res, string(b)}
}

func (r *rig) get(path string) answer {
	r.t.Helper()
	return r.send(http.MethodGet, path, "", "", nil)
}

// page is get for a page that must be there.
func (r *rig) page(path string) string {
	r.t.Helper()
	a := r.get(path)
	if a.StatusCode != http.StatusOK {
		r.t.Fatalf("GET %s: %s\n%s", path, a.Status, a.text)
	}
	return a.text
}

func (r *rig) post(path string, fields url.Values) answer {
	r.t.Helper()
	return r.send(http.MethodPost, path, "application/x-www-form-urlencoded", fields.Encode(), nil)
}

func (r *rig) call(path, body string) answer {
	r.t.Helper()
	return r.send(http.MethodPost, apiRoot+path, "application/json", body, nil)
}

// values makes a form of pairs.
func values(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return v
}

// local tells of the rig's server what trellisd tells of its own.
type local struct{ r *rig }

func (l local) Counts() (operate.Counts, bool) {
	s := l.r.engine.Snapshot(l.r.now())
	return operate.Counts{
		Ready: int64(s.Ready), Reserved: int64(s.Reserved), Delayed: int64(s.Delayed), Buried: int64(s.Buried),
		Waiting: s.Waiting, Puts: s.Puts, Timeouts: s.Timeouts,
	}, true
}

func (l local) Tubes(visit func(*operate.Tube)) error {
	l.r.engine.EachTube(l.r.now(), func(t *stats.Tube) {
		visit(&operate.Tube{
			Name: t.Name, Urgent: int64(t.Urgent), Using: int64(t.Using), Watching: int64(t.Watching), PauseLeft: t.PauseLeft, Oldest: t.OldestReady,
			Limited: t.LimitedBy.String(), Orphaned: int64(t.Orphaned),
			Counts: operate.Counts{
				Ready: int64(t.Ready), Reserved: int64(t.Reserved), Delayed: int64(t.Delayed), Buried: int64(t.Buried),
				Waiting: int64(t.Waiting), Puts: t.Puts, Deletes: t.Deletes,
			},
		})
	})
	return nil
}

func (l local) Waits() []Bucket {
	var b []Bucket
	for i, n := range []uint64{3, 40, 170, 260, 190, 80, 33, 12, 4, 1} {
		b = append(b, Bucket{time.Millisecond << (2 * i), n})
	}
	return append(b, Bucket{-1, 2})
}

func (l local) Blocks(job uint64) (string, int) { return l.r.engine.Blocks(l.r.now(), job) }

func (l local) Problems() []Problem { return nil }

func (l local) Sections() []Section {
	return []Section{
		{"Settings", []SectionLine{{"Largest body", "64 KiB"}, {"Event loops", "2"}, {"Clients", "at most 19,872"}}},
		{"Memory", []SectionLine{{"Of jobs", "34.2 MiB"}, {"Limit", "none"}, {"Of the process", "71 MiB"}}},
		{"Log", []SectionLine{{"Directory", "/var/lib/trellis"}, {"Sync", "every 50 ms"}, {"Live", "12.8 MiB"}, {"Dead", "3.1 MiB"}}},
		{"Cluster", []SectionLine{{"Leads", "n2"}, {"Term", "4"}, {"Members", "n1, n2, n3"}}},
	}
}

var spaces = regexp.MustCompile(`\s+`)

// plain is a page without its markup, roughly, for tests of what it says.
var tags = regexp.MustCompile(`<[^>]*>`)

func plain(page string) string {
	return html.UnescapeString(spaces.ReplaceAllString(tags.ReplaceAllString(page, " "), " "))
}

func wantText(t testing.TB, page string, texts ...string) {
	t.Helper()
	p := plain(page)
	for _, text := range texts {
		if !strings.Contains(p, text) {
			t.Errorf("the page lacks %q:\n%s", text, p)
		}
	}
}

// nobodyAsked lets everybody change things.
func nobodyAsked(*http.Request) (string, bool) { return "ann", true }

// containsAction reports whether a page has a form that goes there.
func containsAction(page, path string) bool { return strings.Contains(page, `action="`+path+`"`) }
