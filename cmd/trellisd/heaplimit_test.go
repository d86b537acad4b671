package main

import (
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/options"
	"trellis/reactor"
)

func TestAutoMemoryIsFourFifthsOfWhatTheProcessMayTake(t *testing.T) {
	t.Parallel()
	opt := &options.Options{MaxMemory: options.AutoMemory}
	if err := fixMemory(opt, func() int64 { return 1000 << 20 }); err != nil || opt.MaxMemory != 800<<20 {
		t.Errorf("%d, %v", opt.MaxMemory, err)
	}
	opt.MaxMemory, opt.BodyMemory = options.AutoMemory, 300<<20
	if err := fixMemory(opt, func() int64 { return 1000 << 20 }); err != nil || opt.MaxMemory != 500<<20 {
		t.Errorf("beside bodies: %d, %v", opt.MaxMemory, err)
	}
	opt.MaxMemory, opt.BodyMemory = options.AutoMemory, 800<<20
	if err := fixMemory(opt, func() int64 { return 1000 << 20 }); err == nil || !strings.Contains(err.Error(), "--body-memory") {
		t.Errorf("beside bodies that may take all: %v", err)
	}
	opt.MaxMemory, opt.BodyMemory = 7, 0
	if err := fixMemory(opt, nil); err != nil || opt.MaxMemory != 7 {
		t.Errorf("a number of bytes: %d, %v", opt.MaxMemory, err)
	}
	opt.MaxMemory = options.AutoMemory
	if err := fixMemory(opt, func() int64 { return 0 }); err == nil || !strings.Contains(err.Error(), "give a number") {
		t.Errorf("where nothing is known: %v", err)
	}
}

func TestTheHeapIsLimitedWithTheMemoryForJobs(t *testing.T) {
	limit := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(limit)
	const others = heapOfServer + 400_000*heapOfConnection + 5000*heapOfTube
	for _, tt := range []struct {
		env       string
		max, want int64
	}{
		{"", 0, limit},
		{"", 1 << 30, 1<<30 + others},
		{"", math.MaxInt64, math.MaxInt64},
		{"1GiB", 1 << 30, limit},
	} {
		t.Setenv("GOMEMLIMIT", tt.env)
		debug.SetMemoryLimit(limit)
		limitHeap(&options.Options{MaxMemory: tt.max, MaxConnections: 400_000, MaxTubes: 5000})
		if got := debug.SetMemoryLimit(-1); got != tt.want {
			t.Errorf("GOMEMLIMIT %q, max-memory %d: %d, want %d", tt.env, tt.max, got, tt.want)
		}
	}
	// Without bounds it is what the process can have, or what the defaults allow.
	t.Setenv("GOMEMLIMIT", "")
	limitHeap(&options.Options{MaxMemory: 64 << 20})
	least := int64(64<<20 + heapOfServer + reactor.DefaultMaxConnections()*heapOfConnection + options.DefaultMaxTubes*heapOfTube)
	if got := debug.SetMemoryLimit(-1); got != least {
		t.Errorf("without bounds: %d, want %d", got, least)
	}
}
