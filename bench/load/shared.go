package load

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"trellis/bench"
)

// A shared is what the workers of a run have in common. While they run, fields that are neither atomic nor locked do
// not change, except for atStart and atEnd, which belong to worker 0.
type shared struct {
	cfg      *bench.Config
	addr     *bench.Address
	scenario *Scenario
	drv      driver // the scenario's
	consumes bool   // some connections take the jobs that others put
	violations
	book     *book
	bodies   *bodies
	mix      *mixTable
	meter    *meter
	counters []counters
	base     time.Time
	prefix   string // of the names of tubes
	tubes    []string
	abort    atomic.Bool // give up at once
	broken   atomic.Bool // begin nothing more
	dialled  atomic.Int64
	spread   int // connections are counted modulo this to choose their source addresses
	seed     uint64
	// unitsPerConn is how many units a connection has under way at once.
	unitsPerConn int
	atStart      usage
	atEnd        usage
}

// now returns the time on the run's clock in nanoseconds.
func (s *shared) now() int64 { return int64(time.Since(s.base)) }

func (s *shared) tube(i int) string { return s.tubes[i%len(s.tubes)] }

// emptyTube returns the name of a tube that never gets a job.
func (s *shared) emptyTube() string { return s.prefix + "-empty" }

func (s *shared) sample(to *usage) {
	if s.cfg.Sample != nil {
		s.cfg.Sample()
	}
	u, err := s.meter.read()
	if err != nil {
		s.violations.add(bench.ViolationClosed, "%v", err)
		return
	}
	u.at = s.now()
	*to = u
}

// tubePrefix returns how the names of a run's tubes begin. It differs between runs, also of other
// processes and on other machines.
func tubePrefix() string { return fmt.Sprintf("%s%d-%x", tubesOfLoads, os.Getpid(), rand.Uint64()) }

// tubesOfLoads is what the names of all tubes of loads begin with.
const tubesOfLoads = "bench-"
