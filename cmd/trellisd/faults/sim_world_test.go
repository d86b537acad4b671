package faults_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// world is what all parts of a history share: its seed, its instants, and its trace.
type world struct {
	seed  uint64
	began time.Time

	mu       sync.Mutex
	instants int64 // that were given out
	trace    trace
}

func newWorld(seed uint64) *world { return &world{seed: seed, began: time.Now()} }

// dice returns those of something with that name.
func (w *world) dice(name ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintln(h, name...)
	return rand.New(&sharedSource{source: rand.NewPCG(w.seed, h.Sum64())})
}

// grain is how many nanoseconds apart events are that would come together. Each has one nanosecond of it.
const grain = 1 << 12

// instant returns how long to wait for an instant, about d from now, that nothing else has.
func (w *world) instant(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.instants++
	redraw(w.seed + uint64(w.instants))
	now := time.Now().UnixNano()
	at := (now+int64(max(d, grain)))&^(grain-1) | w.instants&(grain-1)
	return time.Duration(at - now)
}

// after runs f once about d has passed. f must not wait.
func (w *world) after(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(w.instant(d), f)
}

// sleep waits for about d.
func (w *world) sleep(d time.Duration) { time.Sleep(w.instant(d)) }

// trace is what has happened: a sum of all of it, the last events, and a line for each event if somebody wants that.
type trace struct {
	sum   uint64
	n     int
	last  [200]event
	lines bytes.Buffer
}

// event is something that happened to a member or a client.
type event struct {
	at   time.Duration
	who  string
	what string
	data []byte // of which the beginning is shown
}

// note takes down an event.
func (w *world) note(who, what string, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &w.trace
	e := event{time.Since(w.began), who, what, data}
	t.last[t.n%len(t.last)] = e
	t.n++
	redraw(w.seed + uint64(t.n)<<32)
	t.add(uint64(e.at))
	t.addString(who)
	t.addString(what)
	for len(data) >= 8 {
		t.add(binary.LittleEndian.Uint64(data))
		data = data[8:]
	}
	for _, c := range data {
		t.add(uint64(c))
	}
	if *traces != "" {
		fmt.Fprintf(&t.lines, "%v %d %s %s %q\n", e.at, w.instants, who, what, e.data)
	}
}

func (t *trace) add(x uint64) { t.sum = (t.sum ^ x) * 0x9e3779b97f4a7c15; t.sum ^= t.sum >> 29 }

func (t *trace) addString(s string) {
	for i := range len(s) {
		t.add(uint64(s[i]))
	}
}

// events is how many there were, and in what time.
func (w *world) events() (n int, lasted time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trace.n, time.Since(w.began)
}

// ending lists the last events, at most so many.
func (t *trace) ending(most int) string {
	var s strings.Builder
	for i := max(0, t.n-min(most, len(t.last))); i < t.n; i++ {
		e := &t.last[i%len(t.last)]
		fmt.Fprintf(&s, "%12.6f %-16s %s", e.at.Seconds(), e.who, e.what)
		if strings.Contains(e.who, clientHost) {
			fmt.Fprintf(&s, "%.100q", e.data)
		} else if len(e.data) > 0 {
			fmt.Fprintf(&s, "%d bytes", len(e.data))
		}
		s.WriteByte('\n')
	}
	return s.String()
}

// A sharedSource is one from which several goroutines of a machine draw.
type sharedSource struct {
	mu     sync.Mutex
	source rand.Source
}

func (s *sharedSource) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source.Uint64()
}

// upTo returns a part of d by chance.
func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
