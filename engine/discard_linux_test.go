package engine

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"testing"

	"trellis/binlog/journal"
)

// resident is the memory that the process has, in bytes.
func resident(t testing.TB) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(string(bytes.Fields(b)[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// million makes an engine of a million jobs, of which half are delayed.
func million(t testing.TB) *Engine {
	e := New(Config{})
	f := e.Follow(Always)
	body := make([]byte, 100)
	for id := range uint64(1_000_000) {
		r := journal.Record{ID: id + 1, State: journal.Ready, TTR: 9, Tube: fmt.Sprint(id % 50), Body: body}
		if id%2 == 0 {
			r.State, r.Due, r.Delay = journal.Delayed, int64(id)*1e9, 1
		}
		if _, err := f.Full(&r, journal.Place{Segment: 1}); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// The memory of a million jobs is the system's again when Discard returns, but for what the
// collector finds, and engines that follow each other take no more than the first.
func TestAProcessThatMakesManyEnginesDoesNotGrow(t *testing.T) {
	if !proof || raceEnabled {
		t.Skip("it takes long")
	}
	const engines = 5
	debug.FreeOSMemory()
	before := resident(t)
	var first int64
	for i := range engines {
		e := million(t)
		held := resident(t) - before
		e.Discard()
		atOnce := resident(t) - before
		debug.FreeOSMemory()
		left := resident(t) - before
		t.Logf("engine %d: %d MB, %d MB when discarded, %d MB when collected", i, held>>20, atOnce>>20, left>>20)
		if i == 0 {
			first = held
		}
		if held < 180<<20 {
			t.Fatalf("a million jobs take %d bytes", held)
		}
		// What the jobs have on the Go heap is an index of 4 and heaps of 16 bytes a job.
		if atOnce > held/4 {
			t.Errorf("engine %d: of %d bytes, %d are left when it is discarded", i, held, atOnce)
		}
		if left > first/20 {
			t.Errorf("engine %d: of %d bytes, %d are left after a collection", i, held, left)
		}
		if held > first+first/8 {
			t.Errorf("engine %d takes %d bytes, the first took %d", i, held, first)
		}
	}
}

// BenchmarkDiscard is how long it takes to give a million jobs up.
func BenchmarkDiscard(b *testing.B) {
	for range b.N {
		b.StopTimer()
		e := million(b)
		b.StartTimer()
		e.Discard()
	}
}
