package shard

import (
	"testing"
	"time"

	"trellis/binlog/journal"
)

// The wall clock jumps while jobs wait: what runs goes on by the monotonic clock,
// and what is recorded from then on goes by the new time.
func TestSettingTheWallClockMovesNoDeadline(t *testing.T) {
	day := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, jump := range map[string]time.Duration{"an hour forward": time.Hour, "an hour back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			f := newFile(nil)
			s := newLimitedSim(100, 1, Limits{})
			s.engine.log.Journal = f
			s.engine.ClockSet(day)
			c, worker := s.open(), s.open()
			c.expect(t, "INSERTED 1\r\n", "put 0 1800 9 0\r\n\r\n")
			c.expect(t, "INSERTED 2\r\nRESERVED 2 0\r\n\r\n", "put 0 0 1800 0\r\n\r\nreserve\r\n")
			c.expect(t, "PAUSED\r\n", "pause-tube default 1800\r\n")
			worker.expect(t, "", "reserve-with-timeout 1700\r\n")
			s.Wait(10 * time.Second)

			s.engine.ClockSet(day.Add(jump))
			c.expect(t, "INSERTED 3\r\n", "put 0 1800 9 0\r\n\r\n")
			want := day.Add(10 * time.Second).Add(jump)
			if r := f.jobs[3].record; r.Created != want.UnixNano() || r.Due != want.Add(1800*time.Second).UnixNano() {
				t.Errorf("recorded as put at %v and due at %v, want %v and 1800 s later", time.Unix(0, r.Created), time.Unix(0, r.Due), want)
			}
			s.Wait(1689 * time.Second)
			worker.expect(t, "", "")
			s.Wait(time.Second)
			worker.expect(t, "TIMED_OUT\r\n", "")
			s.Wait(99 * time.Second)
			if n := s.engine.Snapshot(s.now); n.Delayed != 2 || n.Reserved != 1 {
				t.Errorf("after 1799 s: %+v", n)
			}
			s.Wait(time.Second)
			if n := s.engine.Snapshot(s.now); n.Delayed != 1 || n.Reserved != 0 || n.Ready != 2 {
				t.Errorf("after 1800 s: %+v", n)
			}
			worker.expect(t, "RESERVED 1 0\r\n\r\n", "reserve-with-timeout 0\r\n")
		})
	}
}

// A machine without a clock of its own starts in 1970.
func TestNoDelayIsLongerAfterARestartThanWhenItBegan(t *testing.T) {
	s := newSim(100, 1)
	rs := s.engine.Follow(s.now)
	due := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r := journal.Record{ID: 1, State: journal.Delayed, TTR: 9, Delay: 60, Due: due.UnixNano(), Tube: "default"}
	if _, err := rs.Full(&r, journal.Place{Segment: 1}); err != nil {
		t.Fatal(err)
	}
	rs.Serve(2, s.now)
	c := s.open()
	s.Wait(59 * time.Second)
	c.expect(t, "NOT_FOUND\r\n", "peek-ready\r\n")
	s.Wait(time.Second)
	c.expect(t, "FOUND 1 0\r\n\r\n", "peek-ready\r\n")
}
