package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"trellis/binlog"
	"trellis/binlog/vfs/faultfs"
	"trellis/cmd/trellisd/internal/options"
	"trellis/cmd/trellisd/internal/servertest"
	"trellis/engine"
	"trellis/reactor"
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

// What is to leave memory is synced for that, however long -f would let it wait: otherwise puts would wait in vain.
func TestBodiesLeaveMemoryThoughTheNextSyncIsFarOff(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	l, err := binlog.Open("/b", binlog.Options{
		FS: faultfs.New("/b"), SegmentSize: 4 * limit, Sync: binlog.SyncEvery(time.Hour), Indexes: true, Log: slog.New(slog.DiscardHandler),
	})
	servertest.NoError(t, err)
	bl := newDurable(l, "/b")
	bl.bodies = true
	e := &evictor{bell: make(chan struct{}, 1), log: l, limit: limit}
	start, now := newClock()
	e.eng = engine.New(engine.Config{
		Journal: bl, Start: start, Limits: engine.Limits{Bodies: limit}, Crowded: e.ring,
	})
	servertest.NoError(t, bl.restore(e.eng, now, slog.New(slog.DiscardHandler)))
	srv, err := reactor.New(reactor.Config{Engine: e.eng, Now: now, Journal: bl, Loops: 1, MaxJobSize: 1000})
	servertest.NoError(t, err)
	t.Cleanup(func() {
		srv.Abort()
		servertest.NoError(t, bl.end())
	})
	servertest.NoError(t, bl.start(e.eng, srv))
	conn, err := srv.Connect(t.Context())
	servertest.NoError(t, err)
	c := servertest.ClientOn(t, conn)
	const mark = limit / 8 * 7
	for e.eng.BodyMemory() <= mark {
		c.Send("put 0 0 9 1000", strings.Repeat("x", 1000))
		if got := c.Line(); !strings.HasPrefix(got, "INSERTED ") {
			t.Fatal(got)
		}
	}
	t.Cleanup(evictBodies(e))
	servertest.Await(t, "bodies have left memory", func() bool { return e.eng.BodyMemory() <= mark })
}
