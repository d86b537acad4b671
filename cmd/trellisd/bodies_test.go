package main

import (
	"testing"

	"trellis/cmd/trellisd/internal/options"
)

func TestSegmentsOfBodiesAreAShareOfTheDisk(t *testing.T) {
	for disk, want := range map[int64]int64{0: 10 << 20, 300e6: 10 << 20, 1 << 30: 32 << 20, 2 << 30: 64 << 20, 1 << 40: 64 << 20} {
		if got := segmentSize(disk); got != want {
			t.Errorf("on a disk of %d bytes a segment has %d, not %d", disk, got, want)
		}
	}
}

func TestOnlyWhereBodiesLeaveMemoryIsTheSizeOfSegmentsChosen(t *testing.T) {
	dir := t.TempDir()
	for _, x := range []struct {
		opt    options.Options
		chosen bool
	}{
		{options.Options{Binlog: dir, BodyMemory: 1 << 30}, true},
		{options.Options{Binlog: dir, BodyMemory: 1 << 30, SegmentSize: 4096}, false},
		{options.Options{Binlog: dir}, false},
		{options.Options{Binlog: dir + "/none", BodyMemory: 1 << 30}, false},
	} {
		was := x.opt.SegmentSize
		if chooseSegmentSize(&x.opt); (x.opt.SegmentSize != was) != x.chosen {
			t.Errorf("%+v", x.opt)
		}
	}
}
