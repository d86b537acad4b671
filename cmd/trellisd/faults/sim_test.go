package faults_test

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trellis/cmd/trellisd/internal/servertest"
)

var (
	seed  = flag.Uint64("seed", 0, "of the first history; by default one of today's")
	runs  = flag.Int("runs", 0, "how many histories there are; by default as many as the time allows")
	limit = flag.Duration("time", 0, "for which histories begin; by default 10 s, and 4 minutes in make proof")
	size  = flag.Int("members", 0, "of each cluster; by default three, or now and then five")
	first = flag.Bool("first", false, "end with the first history that is wrong")
	sums  = flag.Bool("sums", false, "show the sum of each trace")
)

// tally is what all histories had.
var tally struct {
	histories, leaderships, wrong, undecided int
	simulated, took                          time.Duration
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // never fails
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// report shows the tally. Of undecided histories, all but the order of the commands was checked.
func report() {
	simulated, took := tally.simulated.Seconds(), tally.took.Seconds()
	if tally.undecided > 0 {
		fmt.Printf("sim: of %d histories, no order of some commands was found or ruled out\n", tally.undecided)
	}
	fmt.Printf("sim: %d histories, %d changes of leader, %.0f simulated seconds in %.1f s (x%.0f), %d wrong\n",
		tally.histories, tally.leaderships, simulated, took, simulated/took, tally.wrong)
}

// history runs one, and counts it.
func history(t *testing.T, p plan) outcome {
	began := processorTime()
	o := p.run(t)
	runtime.GC()
	tally.took += processorTime() - began
	tally.histories++
	tally.leaderships += o.leaderships
	tally.simulated += o.lasted
	if o.undecided {
		tally.undecided++
	}
	return o
}

// briefly is how many of a history's last events are shown where other tests run, too: more would hide what those say.
const briefly = 40

// A cluster of which machines, disks, network and clocks fail loses nothing that was acknowledged, hands no job to two,
// gives no wrong reply, and serves soon after the last fault.
func TestHistories(t *testing.T) {
	undisturbed(t)
	defer report()
	begin := *seed
	if begin == 0 {
		begin = uint64(time.Now().Unix()/86400) * 1_000_000
	}
	shown := math.MaxInt // events of a history that is wrong
	if *limit == 0 {
		shown = briefly
		*limit = 10 * time.Second
		if proof && !servertest.RaceEnabled {
			*limit = 4 * time.Minute
		}
	}
	var ends []string
	began := time.Now()
	for i := 0; *runs == 0 && time.Since(began) < *limit || i < *runs; i++ {
		if *first && tally.wrong > 0 {
			break
		}
		p := planOf(begin + uint64(i))
		p.members = cmp.Or(*size, p.members)
		o := history(t, p)
		o.trace.keep(t, p.seed)
		if *sums {
			fmt.Printf("%d %016x %d leaders, %d commands, %.1f s\n",
				p.seed, o.sum, o.leaderships, o.commands, o.lasted.Seconds())
		}
		if len(o.wrongs) > 0 {
			tally.wrong++
			t.Errorf("seed %d: %s\nto play it again: make sim SEED=%d RUNS=1", p.seed, strings.Join(o.wrongs, "\n"), p.seed)
			ends = append(ends, fmt.Sprintf("the end of seed %d:\n%s", p.seed, o.trace.ending(shown)))
		}
	}
	if most := 3 + tally.histories/20; tally.undecided > most {
		t.Errorf("the commands of %d histories are undecided, of at most %d", tally.undecided, most)
	}
	t.Log(strings.Join(ends, "\n")) // behind all that is wrong
}
