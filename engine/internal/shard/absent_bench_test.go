package shard

import (
	"fmt"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
)

// BenchmarkSessionsGoOn is what passes between the moment when a standby with a hundred thousand holds is told to
// serve and the one when the last of twenty thousand sessions that have them goes on.
func BenchmarkSessionsGoOn(b *testing.B) {
	const sessions, each = 20_000, 5
	for _, tubes := range []int{1, 1000} {
		b.Run(fmt.Sprintf("%d tubes", tubes), func(b *testing.B) {
			var serve, longest time.Duration
			for range b.N {
				b.StopTimer()
				e := New(Config{Info: testInfo})
				f := e.Follow(clock.Always)
				f.RecordIn(heldTape{&tape{file: newFile(nil)}})
				body := make([]byte, 100)
				for id := range uint64(sessions * each) {
					r := journal.Record{ID: id + 1, State: journal.Ready, TTR: 900, Tube: fmt.Sprint("tube", id%uint64(tubes)), Body: body}
					if _, err := f.Full(&r, journal.Place{Segment: 1}); err != nil {
						b.Fatal(err)
					}
					h := journal.Hold{ID: id + 1, Session: sessionID(1, 1+id%sessions), End: int64(time.Hour), Offset: 9, Reserves: 1}
					if err := f.Hold(&h); err != nil {
						b.Fatal(err)
					}
				}
				list := make([]Session, sessions)
				b.StartTimer()
				began := time.Now()
				f.ServeOn(sessions*each+1, clock.Second)
				serve += time.Since(began)
				l := &simLoop{alarm: clock.MaxTime}
				l.Loop = e.NewLoop(l)
				for i := range list {
					began := time.Now()
					x := Interests{Used: "out", Watched: []string{fmt.Sprint("tube", i%tubes), "urgent"}}
					d, err := Absent(sessionID(1, 1+uint64(i)), nil, x, 0)
					if err != nil {
						b.Fatal(err)
					}
					if err := l.GoOn(&list[i], d, 0, clock.Second); err != nil {
						b.Fatal(err)
					}
					longest = max(longest, time.Since(began))
				}
				b.StopTimer()
				if !list[sessions-1].Reserves(clock.Second) {
					b.Fatal("a session has nothing that it held")
				}
				e.discardAll()
			}
			b.ReportMetric(float64(serve.Microseconds())/float64(b.N)/1000, "ms/serve")
			b.ReportMetric(float64(longest.Microseconds())/1000, "ms/longest")
		})
	}
}
