package load

import (
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"

	"trellis/bench"
	"trellis/bench/internal/faulty"
	"trellis/bench/internal/host"
)

func TestProcessesBesideTheServerCountAsTheServer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the use of processes is known on Linux only")
	}
	proxy := exec.Command("sleep", "60")
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = proxy.Process.Kill()
		_ = proxy.Wait()
	}()
	alone := &meter{pid: os.Getpid()}
	with := &meter{pid: os.Getpid(), beside: []int{os.Getpid(), proxy.Process.Pid}}
	before, err1 := host.CPU(os.Getpid())
	u, err2 := with.read()
	if err1 != nil || err2 != nil || u.server.Total < 2*before.Total {
		t.Errorf("%v used alone, and %v with itself beside it: %v, %v", before, u.server, err1, err2)
	}
	if one, two := alone.memory(), with.memory(); one <= 0 || two < one+one/2 {
		t.Errorf("%d bytes alone, and %d with itself beside it", one, two)
	}
	with.beside = []int{1 << 30}
	if _, err := with.read(); err == nil {
		t.Error("a process that is not there has used nothing")
	}
}

func TestALoadIsSampledWhenRecordingBeginsAndEnds(t *testing.T) {
	var samples atomic.Int64
	for _, byTime := range []bool{false, true} {
		samples.Store(0)
		cfg := quick(faulty.Start(t, "tcp", faulty.Faults{}).Addr, "cycle")
		if byTime {
			cfg.Count, cfg.Duration = 0, 1e7
		}
		cfg.Sample = func() { samples.Add(1) }
		if res := mustRun(t, cfg); res.Err() != nil || samples.Load() != 2 {
			t.Errorf("by time %v: %d samples, %v", byTime, samples.Load(), res.Err())
		}
	}
}

func TestConnectionsAreMadeAgainAndAgain(t *testing.T) {
	cfg := quick(faulty.Start(t, "tcp", faulty.Faults{}).Addr, "connect")
	res := mustRun(t, cfg)
	if r := res.Runs[0]; res.Err() != nil || r.Units != float64(cfg.Count) || r.Metric(bench.UnitMetric) == nil {
		t.Errorf("%v units, %v", r.Units, res.Err())
	}
}
