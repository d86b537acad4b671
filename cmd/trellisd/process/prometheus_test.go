//go:build proof

package process

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/beanstalkd/go-beanstalk"

	peerwire "trellis/binlog/replica/wire"
	"trellis/binlog/replica/wire/wiretest"
	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

// prometheus is a running Prometheus that scrapes one server.
type prometheus struct {
	t   testing.TB
	url string
}

// startPrometheus starts a Prometheus that scrapes target once a second.
func startPrometheus(t testing.TB, target string, args ...string) *prometheus {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		servertest.NeedPeer(t, "Prometheus is not installed: %v", err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s}\n"+
		"scrape_configs:\n- job_name: trellis\n  static_configs: [{targets: [%q]}]\n", strings.TrimPrefix(target, "http://"))
	if err := os.WriteFile(config, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	addr := wiretest.ReservedAddr(t) // Prometheus does not say which port it has taken
	servertest.LaunchCommand(t, exec.Command(path, append([]string{
		"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + addr, "--log.level=warn",
	}, args...)...))
	p := &prometheus{t, "http://" + addr}
	p.until("up == 1", func(v []float64) bool { return len(v) == 1 })
	return p
}

// query returns the values of an instant query, those left out that are no
// numbers.
func (p *prometheus) query(expr string) (values []float64, err error) {
	res, err := http.PostForm(p.url+"/api/v1/query", url.Values{"query": {expr}})
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error string
		Data  struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, fmt.Errorf("%s: %w", b, err)
	}
	if answer.Error != "" {
		p.t.Fatalf("%s\n%s", expr, answer.Error)
	}
	for _, r := range answer.Data.Result {
		if text, ok := r.Value[1].(string); ok && text != "NaN" {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, err
			}
			values = append(values, v)
		}
	}
	return values, nil
}

// until asks until the answer is as wanted.
func (p *prometheus) until(expr string, wanted func([]float64) bool) {
	p.t.Helper()
	var v []float64
	var err error
	for deadline := time.Now().Add(servertest.Patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if v, err = p.query(expr); err == nil && wanted(v) {
			return
		}
	}
	p.t.Fatalf("%s\nis %v, %v", expr, v, err)
}

func (p *prometheus) untilData(expr string) {
	p.t.Helper()
	p.until(expr, func(v []float64) bool { return len(v) > 0 })
}

func (p *prometheus) untilIs(expr string, want float64) {
	p.t.Helper()
	p.until(expr, func(v []float64) bool { return len(v) == 1 && v[0] == want })
}

// traffic makes everything happen that somebody would want to see.
type traffic struct {
	server *servertest.Server
	mu     sync.Mutex
	err    error // guarded by mu
	stop   chan struct{}
	done   sync.WaitGroup
}

// The jobs that are put before the load begins, so that their number is known.
const (
	stuckJobs  = 3 // that nobody takes
	buriedJobs = 2
	lateJobs   = 2 // that are not finished in time
)

func startTraffic(t *testing.T, s *servertest.Server) *traffic {
	t.Helper()
	c := clientOf(t, s)
	put := func(tube string, n int, pri uint32, delay, ttr time.Duration) {
		for range n {
			tube := beanstalk.NewTube(c, tube)
			_, err := tube.Put([]byte("hello"), pri, delay, ttr)
			servertest.NoError(t, err)
		}
	}
	reserve := func(tube string) uint64 {
		id, _, err := beanstalk.NewTubeSet(c, tube).Reserve(servertest.Patience)
		servertest.NoError(t, err)
		return id
	}
	put("stuck", stuckJobs, 5, 0, time.Minute)
	put("later", 1, 5, time.Hour, time.Minute)
	put("broken", buriedJobs, 5000, 0, time.Minute)
	for range buriedJobs {
		servertest.NoError(t, c.Bury(reserve("broken"), 5000))
	}
	put("late", lateJobs, 5000, 0, time.Second)
	for range lateJobs {
		reserve("late")
	}
	put("held", 1, 5000, 0, time.Minute)
	servertest.NoError(t, beanstalk.NewTube(c, "held").Pause(time.Hour))

	l := &traffic{server: s, stop: make(chan struct{})}
	l.run(func(c *beanstalk.Conn) error {
		_, err := beanstalk.NewTube(c, "work").Put([]byte("hello"), 5000, 0, time.Minute)
		time.Sleep(time.Millisecond)
		return err
	})
	for range 2 {
		n := 0
		l.run(func(c *beanstalk.Conn) error {
			id, _, err := beanstalk.NewTubeSet(c, "work").Reserve(time.Second)
			switch {
			case isTimeout(err):
				return nil
			case err != nil:
				return err
			}
			if n++; n%16 == 0 {
				return c.Release(id, 5000, 0)
			}
			return c.Delete(id)
		})
	}
	return l
}

func isTimeout(err error) bool {
	return err != nil && strings.Contains(err.Error(), beanstalk.ErrTimeout.Error())
}

// run does work again and again on a connection of its own.
func (l *traffic) run(work func(*beanstalk.Conn) error) {
	l.done.Go(func() {
		addr := l.server.Addrs[0]
		c, err := beanstalk.Dial(addr.Network(), addr.String())
		if err != nil {
			l.failed(err)
			return
		}
		defer c.Close()
		l.repeat(func() error { return work(c) })
	})
}

// repeat does work until the end, or until it fails.
func (l *traffic) repeat(work func() error) {
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		if err := work(); err != nil {
			l.failed(err)
			return
		}
	}
}

func (l *traffic) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// end returns what has gone wrong.
func (l *traffic) end() error {
	close(l.stop)
	l.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// The dashboard's variables, as Grafana would fill them in.
var dashboardVariables = strings.NewReplacer(
	"$job", ".+", "$instance", ".+", "$__rate_interval", "5s", "$__interval", "5s",
)

// dashboardQueries are all queries of the dashboard.
func dashboardQueries(t testing.TB) (queries []string) {
	t.Helper()
	b, err := os.ReadFile("../deploy/grafana/trellis.json")
	servertest.NoError(t, err)
	type query struct{ Expr string }
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []query
		}
		Annotations struct{ List []query }
	}
	servertest.NoError(t, json.Unmarshal(b, &dashboard))
	add := func(q query) { queries = append(queries, dashboardVariables.Replace(q.Expr)) }
	for _, p := range dashboard.Panels {
		for _, q := range p.Targets {
			add(q)
		}
	}
	for _, q := range dashboard.Annotations.List {
		add(q)
	}
	if len(queries) < 50 {
		t.Fatalf("%d queries: were all of them found?", len(queries))
	}
	return queries
}

// alertQueries are the expressions of all alerts, with every threshold lowered so
// that what they compare with it must be there for them to have an answer.
func alertQueries(t testing.TB) (queries []string) {
	t.Helper()
	out, err := exec.Command("promtool", "check", "rules", "../deploy/prometheus/trellis.rules.yml").CombinedOutput()
	if err != nil {
		servertest.NeedPeer(t, "promtool check rules: %v\n%s", err, out)
	}
	b, err := os.ReadFile("../deploy/prometheus/trellis.rules.yml")
	servertest.NoError(t, err)
	var (
		rule      = regexp.MustCompile(`(?s)\n        expr: (?:>-\n)?(.*?)\n        (?:for|labels):`)
		threshold = regexp.MustCompile(`(==|>) ([0-9.]+|on \(job, instance\) [0-9.]+ \*)`)
		number    = regexp.MustCompile(` [0-9.]+`)
	)
	for _, m := range rule.FindAllStringSubmatch(string(b), -1) {
		// What stands behind unless is to have no answer.
		expr, unless, _ := strings.Cut(m[1], "unless")
		expr = threshold.ReplaceAllStringFunc(expr, func(s string) string {
			return number.ReplaceAllString(strings.Replace(strings.Replace(s, "==", ">=", 1), "> ", ">= ", 1), " 0")
		})
		if unless != "" {
			expr += "unless" + unless
		}
		queries = append(queries, expr)
	}
	if n := strings.Count(string(b), "- alert:"); n != len(queries) {
		t.Fatalf("%d alerts, and %d expressions were found", n, len(queries))
	}
	return queries
}

// histogramModes are arguments of a Prometheus, by which histograms it takes.
var histogramModes = map[string][]string{
	"classic histograms": nil,
	"native histograms":  {"--enable-feature=native-histograms"},
}

func TestPrometheusAnswersWhatOperatorsAsk(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the process's own metrics are those of Linux")
	}
	for name, args := range histogramModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := servertest.NewCertFiles(t)
			s, url := servertest.Monitored(t, append(files.Flags(), "-b", t.TempDir(), "-f0", "--body-memory=64MB", "-lunix:"+filepath.Join(servertest.SocketDir(t), "s"),
				"--auth-file", servertest.AuthFile(t, fmt.Sprintf("me uid:%d all *\n", os.Getuid()), servertest.TokenLine("other", "right", "all", "*")))...)
			p := startPrometheus(t, url, args...)
			l := startTraffic(t, s)

			p.untilIs(`beanstalkd_tube_current_jobs{job="trellis",state="ready",tube="stuck"}`, stuckJobs)
			p.untilIs(`beanstalkd_current_jobs{state="buried"}`, buriedJobs)
			p.untilIs(`beanstalkd_tube_current_jobs{state="delayed",tube="later"}`, 1)
			p.untilIs(`beanstalkd_job_timeouts_total`, lateJobs)
			p.untilIs(`beanstalkd_tube_pause_left_seconds{tube="held"} > bool 3000`, 1)
			p.untilIs(`beanstalkd_tube_oldest_ready_age_seconds{tube="stuck"} > bool 0.5`, 1)
			p.untilIs(`max_over_time(scrape_samples_scraped[5s]) > bool 100`, 1)
			secure := s.DialTLSAs(1, files.Client(), "right")
			defer secure.Close()
			p.untilIs(`sum(beanstalkd_listener_connections{tls="true"})`, 1)
			// A quantile is one of the last seconds, however long it takes to ask.
			l.done.Go(func() {
				l.repeat(func() error {
					time.Sleep(100 * time.Millisecond)
					c, err := tls.DialWithDialer(&net.Dialer{Timeout: servertest.Patience}, s.Addrs[1].Network(), s.Addrs[1].String(), files.Client())
					if err != nil {
						return err
					}
					return c.Close()
				})
			})

			for _, q := range append(dashboardQueries(t), alertQueries(t)...) {
				if ofCluster(q) {
					continue // a server alone knows nothing of them
				}
				if strings.HasPrefix(q, "changes(process_start_time_seconds") {
					q = strings.Replace(q, "> 0", ">= 0", 1)
				}
				p.untilData(q)
			}

			if err := l.end(); err != nil {
				t.Fatalf("the load: %v", err)
			}
			// At rest, what was counted in several ways agrees.
			c := clientOf(t, s)
			stats, err := c.Stats()
			servertest.NoError(t, err)
			p.untilIs(`beanstalkd_commands_total{command="put"} == on (job, instance) beanstalkd_jobs_total`, number(t, stats["total-jobs"]))
			p.untilIs(`beanstalkd_commands_total{command="delete"}`, number(t, stats["cmd-delete"]))
			p.untilIs(`sum(beanstalkd_binlog_jobs) == bool sum(beanstalkd_current_jobs)`, 1)
			puts := `beanstalkd_command_duration_seconds_count{command="put"}`
			if args != nil {
				puts = `histogram_count(beanstalkd_command_duration_seconds{command="put"})`
			}
			p.untilIs(puts, number(t, stats["cmd-put"]))

			// A tube that has gone is gone at once.
			gone := beanstalk.NewTube(c, "gone")
			id, err := gone.Put([]byte("x"), 1, 0, time.Minute)
			servertest.NoError(t, err)
			p.untilIs(`beanstalkd_tube_current_jobs{state="ready",tube="gone"}`, 1)
			servertest.NoError(t, c.Delete(id))
			_, err = beanstalk.NewTube(c, "default").Put([]byte("x"), 1, 0, time.Minute)
			servertest.NoError(t, err)
			p.until(`beanstalkd_tube_current_jobs{tube="gone"}`, func(v []float64) bool { return len(v) == 0 })
		})
	}
}

// ofCluster reports whether a query is for members of a cluster.
func ofCluster(query string) bool { return strings.Contains(query, "beanstalkd_cluster_") }

func TestPrometheusAnswersWhatOperatorsOfAClusterAsk(t *testing.T) {
	t.Parallel()
	for name, args := range histogramModes {
		t.Run(name, func(t *testing.T) {
			clustertest.Undisturbed(t, 3, func(t testing.TB, w *clustertest.Cluster) {
				w.StartAll()
				l := w.Leader()
				w.Eventually("it has taken a snapshot", func() bool {
					_, err := peerwire.Fetch(t.Context(), peerwire.ClientConfig{}, l.Door.Addr(), []byte(`{"op":"backup"}`), io.Discard)
					return err == nil
				})
				stop := make(chan struct{})
				var load sync.WaitGroup
				defer load.Wait()
				defer close(stop)
				c, err := net.Dial("tcp", l.Clients())
				servertest.NoError(t, err)
				defer c.Close()
				load.Go(func() { _, _ = io.Copy(io.Discard, c) })
				load.Go(func() {
					for {
						select {
						case <-stop:
							_ = c.Close()
							return
						case <-time.After(50 * time.Millisecond):
							_, _ = io.WriteString(c, "put 0 0 60 1\r\nx\r\npeek-ready\r\n")
						}
					}
				})
				p := startPrometheus(t, "http://"+l.HTTP, args...)
				p.untilIs("beanstalkd_cluster_leads", 1)
				p.untilIs("beanstalkd_cluster_voters", 3)
				p.untilIs("sum(beanstalkd_cluster_member_alive)", 3)
				p.untilIs("count(beanstalkd_cluster_member_lag_entries)", 2)
				p.untilIs("beanstalkd_cluster_offices_total >= bool 1", 1)
				queries := 0
				for _, q := range append(dashboardQueries(t), alertQueries(t)...) {
					if ofCluster(q) {
						queries++
						p.untilData(q)
					}
				}
				if queries < 4 {
					t.Errorf("%d queries: were all of them found?", queries)
				}
			})
		})
	}
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(s, 64)
	servertest.NoError(t, err)
	return n
}

func TestPromtoolFindsNothingToMendInTheMetrics(t *testing.T) {
	t.Parallel()
	s, url := servertest.Monitored(t, append(servertest.NewCertFiles(t).Flags(), "-b", t.TempDir())...)
	if err := startTraffic(t, s).end(); err != nil {
		t.Fatalf("the load: %v", err)
	}
	body := servertest.Scrape(t, url)
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = strings.NewReader(body)
	if out, err := cmd.CombinedOutput(); err != nil {
		if cmd.Process == nil {
			servertest.NeedPeer(t, "promtool is not installed: %v", err)
		}
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAlertRulesAreSound(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"check", "rules", "trellis.rules.yml"},
		{"test", "rules", "trellis.rules.test.yml"},
	} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = "../deploy/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			if cmd.Process == nil {
				servertest.NeedPeer(t, "promtool is not installed: %v", err)
			}
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	b, err := os.ReadFile("../deploy/prometheus/trellis.rules.yml")
	servertest.NoError(t, err)
	if alerts, lines := strings.Count(string(b), "- alert:"), strings.Count(string(b), "          runbook: "); alerts != lines {
		t.Errorf("%d alerts and %d runbook lines", alerts, lines)
	}
}
