package main

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"trellis/codec"
	"trellis/engine"
)

// waiter is a session that waits for a job on a tube of its own.
type waiter struct {
	engine.Session
	out   engine.Output
	woken bool
}

func (w *waiter) Wake(engine.Time) { w.woken = true }

// bell is a loop's bell that a test can wait for.
type bell struct{ rung chan struct{} }

func (b *bell) Ring()             { b.rung <- struct{}{} }
func (b *bell) Alarm(engine.Time) {}

// command executes line for s.
func command(t *testing.T, s *engine.Session, now engine.Time, line string, out *engine.Output) engine.Outcome {
	t.Helper()
	d := codec.Decoder{MaxJobSize: 100}
	var cmd codec.Command
	if n, ok := d.Next([]byte(line), &cmd); !ok || n != len(line) {
		t.Fatalf("%q is not one command", line)
	}
	return s.Execute(now, &cmd, out)
}

func TestAlarmsDeliverDelayedJobsWithoutAnybodyAsking(t *testing.T) {
	t.Parallel()
	const tubes = 100 // in all shards
	start, now := newClock()
	alarms := &alarms{now: now}
	info, err := newInfo()
	if err != nil {
		t.Fatal(err)
	}
	eng := engine.New(engine.Config{MaxJobSize: 100, Alarm: alarms.set, Start: start, Info: info})
	alarms.start(eng)
	defer alarms.stop()

	b := &bell{rung: make(chan struct{}, 1)}
	loop := eng.NewLoop(b)
	waiters := make([]waiter, tubes)
	for i := range waiters {
		w := &waiters[i]
		loop.Open(&w.Session, w, now())
		command(t, &w.Session, now(), fmt.Sprintf("watch t%d\r\n", i), &w.out)
		command(t, &w.Session, now(), "ignore default\r\n", &w.out)
		w.out.Buf = nil
		if got := command(t, &w.Session, now(), "reserve\r\n", &w.out); got != engine.Wait {
			t.Fatalf("reserve on an empty tube: outcome %d", got)
		}
	}

	// Producers on loops of their own set alarms from several goroutines. The
	// later deadlines come first, so that the timers have to be moved.
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() {
			var s engine.Session
			var out engine.Output
			own := eng.NewLoop(&bell{rung: make(chan struct{}, 1)})
			own.Open(&s, &waiter{}, now())
			for _, delay := range []int{600, 60, 1} {
				for i := p; i < tubes; i += 4 {
					command(t, &s, now(), fmt.Sprintf("use t%d\r\n", i), &out)
					command(t, &s, now(), fmt.Sprintf("put 0 %d 60 1\r\nx\r\n", delay), &out)
				}
			}
		})
	}
	wg.Wait()

	deadline := time.After(30 * time.Second)
	for left := tubes; left > 0; {
		select {
		case <-b.rung:
		case <-deadline:
			t.Fatalf("%d of %d waiting sessions got no job", left, tubes)
		}
		// A Resume can run what is due in its shard and so hand more jobs over.
		for more := true; more; {
			more = false
			loop.Deliver(now())
			for i := range waiters {
				w := &waiters[i]
				if !w.woken {
					continue
				}
				w.woken = false
				more = true
				left--
				if got := w.Resume(now(), &w.out); got != engine.Done {
					t.Fatalf("resume: outcome %d", got)
				}
			}
		}
	}
}
