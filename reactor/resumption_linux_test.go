package reactor

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trellis/reactor/internal/trunk"
)

// How long 20,000 sessions take to go on, of which every second one waits for a job, and how long the loop is at it at a time at most: so long another client waits.
func BenchmarkResumptions(b *testing.B) {
	const n = 20_000
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, _ := lone(b)
	l := c.loop
	var items []trunk.Item
	for i := range uint32(n) {
		items = append(items, resumesAs(i+1, uint64(i+1), func(x *trunk.Resume) { x.Used, x.Watched = fmt.Sprint("t", i%100), []string{fmt.Sprint("t", i%100)} }))
		if i%2 == 0 {
			items[len(items)-1] = resumesAs(i+1, uint64(i+1), func(x *trunk.Resume) { x.Age, x.Unanswered = time.Second, true })
			items = append(items, effectsAre(i+1), input(i+1, "reserve\r\n"))
		}
	}
	items = append(items, attached)
	now := l.server.now
	var worst, all time.Duration
	round := func(f func(now time.Duration)) {
		t := now()
		before := cpuTime()
		l.Round(false)
		f(t)
		l.serve(t)
		used := cpuTime() - before
		worst, all = max(worst, used), all+used
	}
	for b.Loop() {
		e := newLeaderEnd(l, new(sink), "gateway", testNumber)
		e.Speak(trunk.ResumesSince)
		for in := range slices.Chunk(items, 600) { // a read
			round(func(t time.Duration) {
				for i := range in {
					if err := e.TakeItem(t, &in[i]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		for l.left(now()) {
			round(func(time.Duration) {})
		}
		if len(l.conns) != n+1 {
			b.Fatalf("there are %d connections", len(l.conns))
		}
		b.StopTimer()
		e.Disconnect(now(), io.EOF)
		for len(l.conns) > 1 || l.left(now()) {
			l.Round(false)
			l.serve(now())
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(all.Milliseconds())/float64(b.N), "cpu-ms/20000")
	b.ReportMetric(float64(worst.Microseconds())/1000, "cpu-ms/round")
}

// cpuTime is what the thread has used of a processor: the machine may be busy with something else.
func cpuTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}
