package load

import (
	"strings"
	"testing"

	"trellis/bench"
	"trellis/bench/internal/faulty"
)

// drained runs a load of 500 puts on a server and takes them out, as if they had been put with that seed.
func drained(t *testing.T, seed uint64) (int, error) {
	t.Helper()
	l, addr := listen(t)
	defer l.Close()
	go faulty.Serve(l, faulty.Faults{})
	cfg := bench.Config{
		Addr: addr, Scenario: "put", Conns: 5, Depth: 3, Count: 500, Size: bench.FixedSize(100), Seed: 1, Runs: 1, Keep: true,
	}
	res, err := Run(t.Context(), cfg)
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg.Seed = seed
	d, err := NewDrain(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d.Run(t.Context())
}

func TestADrainTakesAllJobsOut(t *testing.T) {
	if n, err := drained(t, 1); n != 500 || err != nil {
		t.Errorf("%d jobs, %v", n, err)
	}
}

func TestADrainFindsBodiesThatWereNotPut(t *testing.T) {
	if _, err := drained(t, 2); err == nil || !strings.Contains(err.Error(), "is not the one that was put") {
		t.Error(err)
	}
}

func TestADrainNeedsALoadBeforeIt(t *testing.T) {
	l, addr := listen(t)
	defer l.Close()
	go faulty.Serve(l, faulty.Faults{})
	cfg := bench.Config{Addr: addr, Conns: 1, Depth: 1, Size: bench.FixedSize(100)}
	if _, err := NewDrain(&cfg); err == nil || !strings.Contains(err.Error(), "no load has left a tube") {
		t.Error(err)
	}
}
