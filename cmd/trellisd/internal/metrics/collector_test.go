package metrics

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"trellis/binlog"
)

var update = flag.Bool("update", false, "write testdata anew")

// busy lets clients do a bit of everything.
func busy(r *rig) {
	producer, worker := r.dial(), r.dial()
	producer.put("mail", "5", "0")           // 1
	producer.put("mail", "2000", "0")        // 2
	producer.put("mail", "7", "30")          // 3
	producer.put("mail", "2000", "3600")     // 4
	producer.put("thumbs/large", "900", "0") // 5
	r.now += 90e9
	worker.do("watch mail\r\nwatch thumbs/large\r\nreserve\r\nreserve\r\nreserve-job 5\r\n") // 1, 3, 5
	worker.do("bury 1 7\r\ndelete 5\r\n")
	worker.do("pause-tube mail 100\r\n")
	r.now += 10e9
	worker.do("ignore mail\r\nignore thumbs/large\r\nreserve\r\n")
}

func TestWhatTheServerDoesIsShown(t *testing.T) {
	r := newRig(t)
	busy(r)
	checkGolden(t, "testdata/server.txt", gather(t, pedantic(r.wholeSources(), Options{Tubes: allTubes})))
}

// TestNamesAndTypesAreAsPrometheusWantsThem also says that no metric collides
// with another: the registry is a pedantic one.
func TestNamesAndTypesAreAsPrometheusWantsThem(t *testing.T) {
	r := newRig(t)
	busy(r)
	problems, err := testutil.GatherAndLint(pedantic(r.wholeSources(), Options{Tubes: allTubes}))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "beanstalkd_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// A leader that cannot prove that it leads may have jobs that are none any more.
func TestAMemberThatMayHaveBeenReplacedShowsNoJobs(t *testing.T) {
	r := newRig(t)
	busy(r)
	src := r.wholeSources()
	current := true
	serving := src.Serving
	src.Serving = func() *Serving {
		s := serving()
		s.Current = func() bool { return current }
		return s
	}
	registry := pedantic(src, Options{Tubes: allTubes})
	value := func(name string) float64 {
		for _, f := range gather(t, registry) {
			if f.GetName() == name {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		return -1
	}
	if jobs, leads := value("beanstalkd_current_jobs_urgent"), value("beanstalkd_cluster_leads"); jobs < 0 || leads != 1 {
		t.Errorf("a leader shows %v urgent jobs, and that it leads: %v", jobs, leads)
	}
	current = false
	if jobs, leads := value("beanstalkd_current_jobs_urgent"), value("beanstalkd_cluster_leads"); jobs >= 0 || leads != 0 {
		t.Errorf("one that may have been replaced shows %v urgent jobs, and that it leads: %v", jobs, leads)
	}
}

func TestAPartThatDoesNotRunIsNotShown(t *testing.T) {
	r := newRig(t)
	src := r.wholeSources()
	src.Serving = func() *Serving { return nil }
	src.Binlog = func() *binlog.Stats { return nil }
	src.Bodies = func() *Bodies { return nil }
	src.Cluster = func() *Cluster { return nil }
	for _, f := range gather(t, pedantic(src, Options{Tubes: allTubes})) {
		switch name := f.GetName(); {
		case name == "beanstalkd_build_info", strings.HasPrefix(name, "beanstalkd_binlog_"): // of the commits
		case name == "beanstalkd_cluster_store_seconds", name == "beanstalkd_cluster_commit_seconds": // of the stores
		case alwaysShown[name]:
		default:
			t.Errorf("%s is shown", name)
		}
	}
}

// alwaysShown is what alerts ask of a server that serves nobody too, as a standby does.
var alwaysShown = map[string]bool{
	"beanstalkd_reloads_total": true, "beanstalkd_reload_mistakes_total": true, "beanstalkd_reload_failing": true,
	"beanstalkd_tls_certificate_expiry_timestamp_seconds": true,
	"beanstalkd_process_memory_limit_bytes":               true,
}

func TestAServerThatServesNobodyShowsItsFilesAndItsMemoryLimit(t *testing.T) {
	src := newRig(t).wholeSources()
	src.Serving = func() *Serving { return nil }
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(&collector{src: src, memoryLimit: 1 << 30})
	series := make(map[string]int)
	for _, f := range gather(t, r) {
		if alwaysShown[f.GetName()] {
			series[f.GetName()] = len(f.GetMetric())
		}
	}
	// Two files, the results loaded and failed; the server's certificate and an authority.
	want := map[string]int{
		"beanstalkd_reloads_total": 4, "beanstalkd_reload_mistakes_total": 2, "beanstalkd_reload_failing": 2,
		"beanstalkd_tls_certificate_expiry_timestamp_seconds": 2, "beanstalkd_process_memory_limit_bytes": 1,
	}
	if !maps.Equal(series, want) {
		t.Errorf("got %v, want %v", series, want)
	}
}

// A member that passes on what its clients send knows who they are, and not what they do.
func TestAServerThatForwardsItsClientsShowsTheirConnections(t *testing.T) {
	src := newRig(t).wholeSources()
	serving := src.Serving()
	src.Serving = func() *Serving { return nil }
	src.Forwarding = func() Reactor { return serving.Reactor }
	shown := map[string]bool{}
	for _, f := range gather(t, pedantic(src, Options{Tubes: allTubes})) {
		shown[f.GetName()] = true
	}
	for name, want := range map[string]bool{
		"beanstalkd_accepted_connections_total": true, "beanstalkd_loop_connections": true, "beanstalkd_denied_commands_total": true,
		"beanstalkd_authenticated_connections_total": true, "beanstalkd_tls_handshake_duration_seconds": true, "beanstalkd_listener_connections": true,
		"beanstalkd_current_connections": false, "beanstalkd_current_jobs": false, "beanstalkd_command_duration_seconds": false,
	} {
		if shown[name] != want {
			t.Errorf("%s is shown: %v", name, shown[name])
		}
	}
}

func TestSeveralScrapesAtATimeAreIndependent(t *testing.T) {
	r := newRig(t)
	busy(r)
	registry := pedantic(r.wholeSources(), Options{Tubes: 1, Legacy: true})
	want := len(gather(t, registry))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			families, err := registry.Gather()
			if err != nil || len(families) < want {
				t.Errorf("%d families, want %d: %v", len(families), want, err)
			}
		})
	}
	wg.Wait()
}

func gather(t testing.TB, g prometheus.Gatherer) (ours []*dto.MetricFamily) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if name := f.GetName(); !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			ours = append(ours, f)
		}
	}
	return ours
}

func checkGolden(t *testing.T, file string, families []*dto.MetricFamily) {
	t.Helper()
	var b bytes.Buffer
	for _, f := range families {
		switch f.GetName() {
		case "beanstalkd_process_memory_limit_bytes": // not everywhere
			continue
		case "beanstalkd_job_memory_bytes": // the engine's affair
			f.Metric[0].Gauge.Value = new(float64)
		case "beanstalkd_build_info":
			for i, l := range f.Metric[0].Label {
				if l.GetName() == "goversion" {
					f.Metric[0].Label[i] = label("goversion", "go1.0")
				}
			}
		}
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, expected := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(expected)) {
		if i >= len(got) || i >= len(expected) || got[i] != expected[i] {
			t.Fatalf("differs from line %d of %s on:\n%s\nafter a wanted change, run the test with -update",
				i+1, file, strings.Join(got[min(i, len(got)):min(i+5, len(got))], "\n"))
		}
	}
}
