package faults_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

var (
	traces = flag.String("traces", "", "the folder that gets a file with each trace; by default none does")
	again  = flag.Bool("again", false, "compare the traces of seeds that were played in two processes")
)

// keep writes the events into a file, if that is asked for.
func (t *trace) keep(test *testing.T, seed uint64) {
	if *traces != "" {
		if err := os.WriteFile(filepath.Join(*traces, fmt.Sprint(seed)), t.lines.Bytes(), 0o600); err != nil {
			test.Fatal(err)
		}
	}
}

// Seeds have the same trace in another process: one plays them all, and each is played by one that plays nothing else,
// as somebody plays one again that has failed.
func TestSeedsArePlayedAgain(t *testing.T) {
	if !*again {
		t.Skip("-again is not given")
	}
	play := func(dir string, seed uint64, runs int) {
		c := exec.Command(os.Args[0], "-test.run=^TestHistories$", "-test.timeout=0", "-traces="+dir,
			fmt.Sprintf("-seed=%d", seed), fmt.Sprintf("-runs=%d", runs))
		c.Env = append(os.Environ(), "GOMAXPROCS=1")
		if text, err := c.CombinedOutput(); err != nil {
			t.Logf("%v: %s", err, text) // a history that is wrong has a trace, too
		}
	}
	dirs := [2]string{t.TempDir(), t.TempDir()}
	equal := 0
	play(dirs[0], *seed, *runs)
	for s := *seed; s < *seed+uint64(*runs); s++ {
		play(dirs[1], s, 1)
		var texts [2][]byte
		for i, dir := range dirs {
			name := filepath.Join(dir, fmt.Sprint(s))
			texts[i], _ = os.ReadFile(name) // there is none if the process has ended too early: then it has no events
			_ = os.Remove(name)
		}
		if n, a, b := difference(texts[0], texts[1]); n > 0 {
			fmt.Printf("seed %d: event %d is\n\t%.300s\nor\n\t%.300s\n", s, n, a, b)
		} else if len(texts[0]) > 0 {
			equal++
		}
	}
	fmt.Printf("sim: %d of %d seeds have the same trace in two processes\n", equal, *runs)
	if 100*equal < 99**runs {
		t.Error("the others are more than one in a hundred")
	}
}

// difference returns the first lines that are not equal, and their number; 0 if all are.
func difference(a, b []byte) (n int, x, y []byte) {
	for n = 1; len(a)+len(b) > 0; n++ {
		x, a, _ = bytes.Cut(a, []byte{'\n'})
		y, b, _ = bytes.Cut(b, []byte{'\n'})
		if !bytes.Equal(x, y) {
			return n, x, y
		}
	}
	return 0, nil, nil
}

// A seed says what happens: played again, it has the same trace, also on a machine that takes the processor away.
func TestASeedIsPlayedAgain(t *testing.T) {
	if servertest.RaceEnabled {
		t.Skip("the race detector runs goroutines in an order that no seed decides")
	}
	undisturbed(t)
	const tries = 5 // the runtime's monitor may be late to fall asleep
	for s := uint64(1); s <= 3; s++ {
		seen := map[uint64]bool{}
		for again := true; again && len(seen) < tries; runtime.GC() {
			sum := planOf(s).run(t).sum
			again = !seen[sum]
			seen[sum] = true
		}
		if len(seen) == tries {
			t.Errorf("seed %d has %d traces", s, tries)
		}
	}
}
