package link

import (
	"slices"
	"sync/atomic"
	"time"

	"trellis/engine"
	"trellis/reactor/internal/clock"
	"trellis/reactor/internal/stream"
)

// Config is what a loop does for its links.
type Config struct {
	Poller stream.Poller
	Wake   func() // makes the loop begin a round
}

// Links are those of a loop. They belong to its goroutine.
type Links struct {
	In, Out atomic.Uint64 // bytes that were read and written; any goroutine may read them
	Engine  *engine.Loop  // pays for what is done; the owner changes it
	Resets  bool          // links that end are reset, because the server is aborted; the owner sets it

	cfg      Config
	list     []*Link
	dirty    []*Link       // that have something to write
	relieved []*Link       // that have room again
	tick     time.Duration // when the next one is to be looked at; never while there is none
}

// Init is called first.
func (ls *Links) Init(cfg Config) { ls.cfg, ls.tick = cfg, clock.Never }

// Add adds a link, which brings items for end. The poller gets its socket next.
func (ls *Links) Add(t *Link, end End, now time.Duration) {
	t.end = end
	stream.LimitUnsent(int(t.fd))
	ls.list = append(ls.list, t)
	ls.tick = min(ls.tick, now+Tick)
}

// All is a copy of the list of links.
func (ls *Links) All() []*Link { return slices.Clone(ls.list) }

// HasOutput reports whether Flush would write something.
func (ls *Links) HasOutput() bool { return len(ls.dirty) > 0 }

// Flush writes what was sent in a round: all that is for one link leaves in one write.
func (ls *Links) Flush(now time.Duration) {
	for len(ls.dirty) > 0 {
		t := ls.dirty[0]
		ls.dirty = slices.Delete(ls.dirty, 0, 1)
		t.dirty = false
		t.flush(now)
	}
}

// NextTurn is when Turn is to be called, if HasWork does not report true before.
func (ls *Links) NextTurn() time.Duration { return ls.tick }

func (ls *Links) remove(t *Link) {
	same := func(o *Link) bool { return o == t }
	ls.list = slices.DeleteFunc(ls.list, same)
	ls.dirty = slices.DeleteFunc(ls.dirty, same)
	ls.relieved = slices.DeleteFunc(ls.relieved, same)
	if len(ls.list) == 0 {
		ls.tick = clock.Never
	}
}

// Writable goes on with the link whose socket takes output again.
func (ls *Links) Writable(fd int) {
	for _, t := range ls.list {
		if int(t.fd) == fd {
			t.armed = false
			t.soil()
			return
		}
	}
}

// Turn does what is to be done.
func (ls *Links) Turn(now time.Duration) {
	if n := len(ls.relieved); n > 0 {
		t := ls.relieved[0]
		ls.relieved = slices.Delete(ls.relieved, 0, 1)
		t.relieved = false
		t.end.HasRoom(now)
	}
	if ls.tick <= now {
		ls.tick = now + Tick
		for _, t := range ls.All() {
			t.tick(now)
		}
	}
}

// HasWork reports whether Turn would do something.
func (ls *Links) HasWork(now time.Duration) bool { return len(ls.relieved) > 0 || ls.tick <= now }
