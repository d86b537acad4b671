package load

import (
	"testing"
	"time"

	"trellis/bench"

	"golang.org/x/sys/unix"
)

// newPairedWorker makes a worker with one connection, and the descriptor of its other end.
func newPairedWorker(t *testing.T) (w *worker, peer int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(pair[0]) })
	cfg := bench.Config{Scenario: "cycle", Depth: 4, Size: bench.FixedSize(100), ReplyTimeout: time.Minute}
	s := &shared{cfg: &cfg, drv: cycleDriver{}, bodies: newBodies(cfg.Size, 1), counters: make([]counters, 1), base: time.Now(), unitsPerConn: 4}
	s.book = newBook(&s.violations, s.bodies, false)
	w = newWorker(s, 0)
	w.conns = []conn{{role: roleUnits}}
	if err := w.prepare(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.closeAll)
	w.conns[0].fd, w.conns[0].state = int32(pair[1]), stateReady
	w.recording, w.budget = true, -1
	return w, pair[0]
}

func TestACommandAllocatesNothing(t *testing.T) {
	w, peer := newPairedWorker(t)
	c := &w.conns[0]
	requests, replies := make([]byte, 64<<10), make([]byte, 0, 1<<10)
	id, held := uint64(0), uint64(0)
	answer := func(text string) {
		replies = append(replies[:0], text...)
	}
	// One unit after the other, each reply in two pieces.
	step := func() {
		n, err := unix.Read(peer, requests)
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		switch requests[0] {
		case 'p':
			id++
			answer("INSERTED ")
			replies = append(appendNumber(replies, id), "\r\n"...)
		case 'r':
			held = id
			answer("RESERVED ")
			replies = append(append(appendNumber(replies, held), " 100\r\n"...), w.bodies.append(nil2, id-1, 100)...)
			replies = append(replies, "\r\n"...)
		default:
			answer("DELETED\r\n")
		}
		for _, part := range [][]byte{replies[:3], replies[3:]} {
			if _, err := unix.Write(peer, part); err != nil {
				t.Fatal(err)
			}
			w.read(c)
		}
	}
	w.begin(c, w.now())
	w.flush(c)
	for range 3000 {
		step()
	}
	if n := testing.AllocsPerRun(3000, step); n > 0 {
		t.Errorf("%v allocations a command", n)
	}
	if r := w.report(); r != nil {
		t.Errorf("violations: %v", r)
	}
}

func TestAReplyThatHasComeIsNotMissing(t *testing.T) {
	w, peer := newPairedWorker(t)
	c := &w.conns[0]
	if err := w.poll.add(c.fd, c.index, false); err != nil {
		t.Fatal(err)
	}
	w.begin(c, w.now())
	w.flush(c)
	past := w.now() - 2*int64(w.cfg.ReplyTimeout)
	for _, reply := range []string{"", "INSERTED 1\r\n"} {
		if _, err := unix.Write(peer, []byte(reply)); err != nil {
			t.Fatal(err)
		}
		w.lastReply = past
		if silent := w.silent(w.now()); silent != (reply == "") {
			t.Errorf("a stall, and %q has come: silent %v", reply, silent)
		}
	}
}

// nil2 is room for a body.
var nil2 = make([]byte, 0, 200)

func appendNumber(b []byte, n uint64) []byte {
	if n >= 10 {
		b = appendNumber(b, n/10)
	}
	return append(b, byte('0'+n%10))
}
