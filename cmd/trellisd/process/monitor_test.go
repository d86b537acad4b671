package process

import (
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

func TestReadinessFollowsDrainModeAndHealthDoesNot(t *testing.T) {
	t.Parallel()
	s, url := servertest.Monitored(t)
	if status, body := servertest.Get(t, url+"/readyz"); status != http.StatusOK {
		t.Errorf("ready: %d %s", status, body)
	}
	s.Signal(syscall.SIGUSR1)
	s.WaitText("drain mode")
	if status, body := servertest.Get(t, url+"/readyz"); status != http.StatusServiceUnavailable || body != "draining\n" {
		t.Errorf("draining: %d %s", status, body)
	}
	if status, body := servertest.Get(t, url+"/healthz"); status != http.StatusOK {
		t.Errorf("alive: %d %s", status, body)
	}
	if body := servertest.Scrape(t, url); !strings.Contains(body, "\nbeanstalkd_draining 1\n") {
		t.Errorf("the metrics do not say that it drains")
	}
	c := s.Dial(0)
	c.Send("undrain")
	c.Want("NOT_DRAINING")
	if status, body := servertest.Get(t, url+"/readyz"); status != http.StatusOK {
		t.Errorf("not draining any more: %d %s", status, body)
	}
	c.Send("drain")
	c.Want("DRAINING")
	if status, body := servertest.Get(t, url+"/readyz"); status != http.StatusServiceUnavailable || body != "draining\n" {
		t.Errorf("a client has drained it: %d %s", status, body)
	}
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAScrapeIsNoCommandAndNoConnection(t *testing.T) {
	t.Parallel()
	s, url := servertest.Monitored(t)
	c := s.Dial(0)
	c.Send("put 1 0 60 1", "x")
	c.Want("INSERTED 1")
	stats := func() (kept []string) {
		c.Send("stats")
		line, err := c.In.ReadString('\n')
		for err == nil && line != "\r\n" {
			if !strings.HasPrefix(line, "OK ") && !strings.HasPrefix(line, "rusage-") && !strings.HasPrefix(line, "uptime") &&
				!strings.HasPrefix(line, "cmd-stats:") {
				kept = append(kept, line)
			}
			line, err = c.In.ReadString('\n')
		}
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	before := stats()
	for range 3 {
		servertest.Scrape(t, url)
	}
	if after := stats(); strings.Join(after, "") != strings.Join(before, "") {
		t.Errorf("before:\n%safter:\n%s", strings.Join(before, ""), strings.Join(after, ""))
	}
}

func TestMetricsFlagsBoundTubesAndAddOldNames(t *testing.T) {
	t.Parallel()
	s, url := servertest.Monitored(t, "--metrics-tubes=2", "--metrics-legacy")
	c := s.Dial(0)
	c.Send("use big", "put 1 0 60 1", "x", "put 1 0 60 1", "x", "use small", "put 1 0 60 1", "x")
	c.Want("USING big", "INSERTED 1", "INSERTED 2", "USING small", "INSERTED 3")
	body := servertest.Scrape(t, url)
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
	_, url := servertest.Monitored(t)
	if status, _ := servertest.Get(t, url+"/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("without --pprof: %d", status)
	}
	_, url = servertest.Monitored(t, "--pprof")
	if status, _ := servertest.Get(t, url+"/debug/pprof/goroutine?debug=1"); status != http.StatusOK {
		t.Errorf("with --pprof: %d", status)
	}
}

func TestASlowScrapeDoesNotHoldUpTheStop(t *testing.T) {
	t.Parallel()
	s, url := servertest.Monitored(t)
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), servertest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\n"); err != nil { // and no more
		t.Fatal(err)
	}
	begun := time.Now()
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d after %v", code, time.Since(begun))
	}
}

func TestAutoMemoryIsFourFifthsOfWhatTheMetricsSayThatTheProcessMayTake(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the limits are those of Linux")
	}
	_, url := servertest.Monitored(t, "--max-memory=auto")
	got, of := servertest.GaugeOf(t, url, "beanstalkd_job_memory_limit_bytes"), servertest.GaugeOf(t, url, "beanstalkd_process_memory_limit_bytes")
	if got < of*0.79 || got > of*0.81 {
		t.Errorf("%v of %v", got, of)
	}
}
