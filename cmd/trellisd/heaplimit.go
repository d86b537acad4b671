package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"

	"trellis/cmd/trellisd/internal/options"
	"trellis/reactor"
)

// What there may be on the Go heap that is no job's, in bytes.
const (
	heapOfConnection = 3 << 9
	heapOfTube       = 1 << 10
	heapOfServer     = 256 << 20 // buffers, and lists of what there is
	heapOfMember     = 512 << 20 // entries that are cached, wait, and are on their way to others
)

// autoMemory is how much of what the process may take --max-memory=auto lets jobs have, in percent.
const autoMemory = 80

// fixMemory replaces --max-memory=auto by a number of bytes. Bodies that have a limit of their own are not in it.
func fixMemory(opt *options.Options, limit func() int64) error {
	if opt.MaxMemory != options.AutoMemory {
		return nil
	}
	all := limit() / 100 * autoMemory
	switch opt.MaxMemory = all - opt.BodyMemory; {
	case all == 0:
		return errors.New("--max-memory=auto: this system does not tell how much memory there is; give a number of bytes")
	case opt.MaxMemory <= 0:
		return fmt.Errorf("--max-memory=auto: --body-memory leaves nothing of %d bytes for jobs; give less, or a number", all)
	}
	return nil
}

// ballast is never touched, and is made before any memory is used a second time, so that it
// takes none of the system's. The collector counts it as alive, and so lets a small heap grow
// by a quarter of it: otherwise it runs ten times a second where connections come and go, for
// 2 % of the processor's time. It would count against GOMEMLIMIT, and is dropped where the
// operator has set that or GOGC.
var ballast = make([]byte, 8<<20)

// collectSoon makes the garbage collector run when the heap is a quarter larger than
// what lives, unless the operator has said otherwise. Commands make next to no
// garbage; what there is comes from accepting connections, and would take as much
// memory as they do.
func collectSoon() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		ballast = nil
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
}

// limitHeap makes the garbage collector work harder when the heap comes near to
// what it may take beside the memory of jobs, unless the operator has set
// GOMEMLIMIT. Jobs and bodies themselves are not on that heap. Queues take at most
// a quarter of what the smallest jobs take, and twice that while a queue grows.
// Keys take about as much as the smallest jobs with keys are counted for. A limit
// below what all of these, connections and tubes take would keep the collector
// running all the time.
func limitHeap(opt *options.Options) {
	if opt.MaxMemory == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	connections := cmp.Or(opt.MaxConnections, reactor.DefaultMaxConnections())
	tubes := cmp.Or(opt.MaxTubes, options.DefaultMaxTubes)
	others := heapOfServer + heapOfConnection*int64(connections) + heapOfTube*int64(tubes)
	if opt.Cluster.Member() {
		others += heapOfMember
	}
	debug.SetMemoryLimit(min(opt.MaxMemory, math.MaxInt64-others) + others)
}
