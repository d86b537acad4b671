package shard

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
)

// Everybody who needs the body of a job that is not in memory gets it, as if it were.
func TestABodyThatHasLeftMemoryIsToldAsItWasPut(t *testing.T) {
	for command, want := range map[string]string{
		"reserve":                     "RESERVED 1 5\r\nfirst\r\n",
		"reserve-with-timeout 0":      "RESERVED 1 5\r\nfirst\r\n",
		"reserve-job 2":               "RESERVED 2 6\r\nsecond\r\n",
		"reserve-batch 3":             "RESERVED_BATCH 2\r\nRESERVED 1 5\r\nfirst\r\nRESERVED 2 6\r\nsecond\r\n",
		"peek 2":                      "FOUND 2 6\r\nsecond\r\n",
		"peek-ready":                  "FOUND 1 5\r\nfirst\r\n",
		"peek-tube default ready":     "FOUND 1 5\r\nfirst\r\n",
		"move-job 2 a\r\nwatch a":     "MOVED\r\nWATCHING 2\r\n",
		"move-tube default ready a 9": "MOVED 2\r\n",
		"bury 1 0\r\ndelete 1":        "NOT_FOUND\r\nDELETED\r\n",
		"watch a 2\r\nreserve-mode weighted\r\nreserve": "WATCHING 2\r\nUSING weighted\r\nRESERVED 1 5\r\nfirst\r\n",
	} {
		t.Run(command, func(t *testing.T) {
			s := coldSim(1)
			defer s.engine.Discard()
			c := s.open()
			c.say("put 0 0 9 5\r\nfirst", "put 0 0 9 6\r\nsecond")
			if n := s.coldJobs(); n != 2 {
				t.Fatalf("%d of 2 jobs are cold", n)
			}
			if got := c.say(command); got != want {
				t.Errorf("it was answered %q", got)
			}
			if n := s.engine.loads.Len(); n != 0 {
				t.Errorf("%d loads are left", n)
			}
		})
	}
}

// So does a client that waits for a job which nobody has in memory when it is handed over.
func TestAColdJobIsHandedOver(t *testing.T) {
	s := coldSim(2)
	defer s.engine.Discard()
	c, worker := s.open(), s.open()
	c.say("put 0 2 9 4\r\nlate")
	worker.say("reserve")
	s.Wait(3 * time.Second)
	s.Settle()
	if got := worker.say(); got != "RESERVED 1 4\r\nlate\r\n" {
		t.Errorf("the worker was told %q", got)
	}
	if left := s.left(t, c, 1); left != 8 { // it was ready for a second
		t.Errorf("%d seconds of its time to run are left", left)
	}
}

// left is how many seconds of a job's time to run are left, as clients are told.
func (s *sim) left(t *testing.T, c *simConn, id uint64) (n int) {
	t.Helper()
	x, err := c.loop.by().Job(s.now, id, new(Output))
	if err != nil {
		t.Fatal(err)
	}
	return int(time.Duration(x.Left) / time.Second)
}

// A job's time to run begins when its client is told of it: a slow disk makes no time-outs.
func TestTheTimeToRunBeginsWithTheReply(t *testing.T) {
	s := coldSim(1)
	defer s.engine.Discard()
	c, other := s.open(), s.open()
	c.say("put 0 0 3 1\r\nx", "put 0 0 2 1\r\ny")
	s.cold.late = 1 << 30
	c.say("reserve-batch 2")
	s.Wait(8 * time.Second)
	if left := s.left(t, other, 1); left != 3 {
		t.Errorf("while it is loaded %d seconds are left", left)
	}
	if got := c.say(); got != "" {
		t.Fatalf("the client was told %q before its bodies had come", got)
	}
	s.cold.late = 0
	s.Settle()
	if got := c.say(); got != "RESERVED_BATCH 2\r\nRESERVED 1 1\r\nx\r\nRESERVED 2 1\r\ny\r\n" {
		t.Errorf("the client was told %q", got)
	}
	s.Wait(1500 * time.Millisecond)
	other.told(t, "NOT_FOUND\r\n", "kick-job 1")
	if left := s.left(t, other, 1); left != 1 {
		t.Errorf("after 1.5 of 3 seconds %d are left", left)
	}
	s.Wait(time.Second)
	if n := s.engine.Snapshot(s.now).Timeouts; n != 1 {
		t.Errorf("%d jobs have timed out, want one", n)
	}
}

// What ends before the client is told counts as nothing: no reserve, no attempt, no release.
func TestAJobGivenBackBeforeItsClientWasToldIsAsItWas(t *testing.T) {
	for name, end := range map[string]func(*sim, *simConn){
		"close":    func(_ *sim, c *simConn) { _ = c.Close() },
		"time-out": func(s *sim, _ *simConn) { s.Wait(11 * time.Second) },
		"the disk hangs": func(s *sim, c *simConn) {
			s.cold.fails, s.cold.late = func(journal.Fetch) error { return errDisk }, 0
			s.Settle()
		},
	} {
		for _, command := range []string{"reserve", "reserve-batch 2", "reserve, on record", "reserve-batch 2, on record"} {
			t.Run(name+" "+command, func(t *testing.T) {
				s, agrees := coldSim(1), func() {}
				defer s.engine.Discard()
				command, _, onRecord := strings.Cut(command, ",")
				if onRecord {
					record := s.coldMember()
					agrees = func() { s.standbyAgrees(t, record) }
				}
				c, other := s.open(), s.open()
				c.say("set-tube default attempts=1 disconnects=1 linger=0", "put 0 0 9 1\r\nx")
				s.cold.late = 1 << 30
				c.say(command)
				if n := s.engine.Snapshot(s.now).Reserved; n != 1 {
					t.Fatalf("%d jobs are reserved", n)
				}
				agrees()
				end(s, c)
				agrees()
				x, err := other.loop.by().Job(s.now, 1, new(Output))
				if err != nil || x.State != "ready" || x.Reserves != 0 || x.Timeouts != 0 || x.Releases != 0 || x.Tube != "default" {
					t.Errorf("the job is %+v, %v", x, err)
				}
				if name != "close" {
					if got := c.say(); got != "INTERNAL_ERROR\r\n" {
						t.Errorf("the client was told %q", got)
					}
				}
				s.cold.late, s.cold.fails = 0, nil
				s.Settle()
				if n := s.engine.loads.Len(); n != 0 {
					t.Errorf("%d loads are left", n)
				}
				other.told(t, "RESERVED 1 1\r\nx\r\n", "reserve")
			})
		}
	}
}

// A job whose body is damaged is buried on record, and whoever has reserved it gets the next one.
func TestAJobWhoseBodyCannotBeReadIsBuried(t *testing.T) {
	const reserved, batch = "RESERVED 2 4\r\ngood\r\n", "RESERVED_BATCH 1\r\nRESERVED 2 4\r\ngood\r\n"
	for _, x := range []struct {
		command, want string
		onRecord      bool // and so a standby knows it
	}{
		{"reserve", reserved, false},
		{"reserve-batch 2", batch, false},
		{"reserve", reserved, true},
		{"reserve-batch 2", batch, true},
	} {
		s, agrees := coldSim(1), func() {}
		if x.onRecord {
			record := s.coldMember()
			agrees = func() { s.standbyAgrees(t, record) }
		}
		c := s.open()
		c.say("put 0 0 9 3\r\nbad", "put 0 0 9 4\r\ngood")
		s.cold.fails = func(x journal.Fetch) error {
			if x.ID == 1 {
				return journal.ErrUnreadable
			}
			return nil
		}
		c.told(t, x.want, x.command)
		agrees()
		if x := s.cold.jobs[1].record; x.State != journal.Buried || x.Reserves != 0 {
			t.Errorf("on record it is %v, reserved %d times", x.State, x.Reserves)
		}
		c.told(t, "INTERNAL_ERROR\r\n", "peek 1")
		c.told(t, "INTERNAL_ERROR\r\n", "reserve-job 1")
		c.told(t, "INTERNAL_ERROR\r\n", "move-job 1 a")
		c.told(t, "INTERNAL_ERROR\r\n", "move-tube default buried a 1")
		c.told(t, "KICKED 1\r\n", "kick 1")
		s.cold.fails = nil
		c.told(t, "RESERVED 1 3\r\nbad\r\n", "reserve")
		if n := s.engine.loads.Len(); n != 0 {
			t.Errorf("%d loads are left", n)
		}
		s.engine.Discard()
	}
}

// A reserve-batch of which nothing can be read goes on with the next jobs, or waits for one.
func TestABatchThatIsBuriedGoesOnWithTheNext(t *testing.T) {
	s := coldSim(1)
	defer s.engine.Discard()
	c, other := s.open(), s.open()
	s.cold.fails = func(x journal.Fetch) error {
		if x.Size == 3 {
			return journal.ErrUnreadable
		}
		return nil
	}
	bad, good := "put 0 0 99 3\r\nbad", "put 0 0 99 4\r\ngood"
	other.say(bad, bad, bad, good)
	c.told(t, "RESERVED_BATCH 1\r\nRESERVED 4 4\r\ngood\r\n", "reserve-batch 2")
	other.say(bad)
	c.told(t, "RESERVED_BATCH 0\r\n", "reserve-batch 2")
	other.say(bad)
	c.told(t, "", "reserve-batch 2 10")
	s.Wait(5 * time.Second)
	other.say(bad)
	s.Wait(4 * time.Second)
	c.told(t, "")
	other.say(good)
	c.told(t, "RESERVED_BATCH 1\r\nRESERVED 8 4\r\ngood\r\n")
	c.say("reserve-batch 2 10")
	s.Wait(5 * time.Second)
	other.say(bad)
	s.Wait(5 * time.Second)
	c.told(t, "RESERVED_BATCH 0\r\n")
	if n := s.engine.loads.Len(); n != 0 {
		t.Errorf("%d loads are left", n)
	}
}

// A move of a tube ends before the first job whose body cannot be read.
func TestAMoveOfATubeEndsBeforeWhatCannotBeRead(t *testing.T) {
	s := coldSim(1)
	defer s.engine.Discard()
	c := s.open()
	for range 5 {
		c.say("put 0 0 9 1\r\nx")
	}
	s.cold.fails = func(x journal.Fetch) error {
		if x.ID == 4 {
			return journal.ErrUnreadable
		}
		return nil
	}
	c.told(t, "MOVED 3\r\n", "move-tube default ready a 9")
	s.cold.fails = nil
	c.told(t, "FOUND 4 1\r\nx\r\n", "peek-ready")
}

// A wait that has ended in another way is not resumed by its load, nor is one that has come since, of a client that has
// the same memory.
func TestALoadResumesNobodyElse(t *testing.T) {
	for name, end := range map[string]func(*simConn){
		"closed": func(c *simConn) { c.end() },
		"quit":   func(c *simConn) { c.say("quit"); c.end() },
		"another": func(c *simConn) {
			c.end()
			c.ended, c.waiting = false, false
			reflect.ValueOf(c.session.Real()).Elem().SetZero()
			c.loop.AboveLoop.Open(c.session.AboveSession, c.sim.now)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := coldSim(1)
			defer s.engine.Discard()
			c, other := s.open(), s.open()
			other.say("put 0 0 9 1\r\nx")
			s.cold.late = 1 << 30
			c.say("peek 1")
			x := s.cold.read(s.cold.asked[0])
			s.cold.asked = nil
			s.engine.Loaded([]journal.Fetched{x}) // of which its loop has not heard
			end(c)
			woken := c.woken
			if name == "another" {
				c.say("watch empty\r\nignore default\r\nreserve")
			}
			s.Settle()
			if c.woken != woken {
				t.Error("it was resumed")
			}
			if n := s.engine.loads.Len(); n != 0 {
				t.Errorf("%d loads are left", n)
			}
		})
	}
}

// A client that sends no more is answered what it has asked for; another engine goes on with one that is detached, and
// nothing is left of its wait.
func TestAWaitForABodyGoesOnElsewhere(t *testing.T) {
	s := coldSim(1)
	defer s.engine.Discard()
	half, moving, other := s.open(), s.open(), s.open()
	other.say("put 0 0 9 1\r\nx", "put 0 0 9 1\r\ny")
	s.cold.late = 1 << 30
	half.say("reserve")
	moving.say("reserve")
	if got := other.say("peek 2"); got != "" || s.engine.loads.Len() != 2 {
		t.Fatalf("%q, %d loads", got, s.engine.loads.Len())
	}
	if half.session.HalfClose(s.now, &half.out) != Wait {
		t.Fatal("the command of who has half closed has ended")
	}
	d, ok := moving.session.Detach()
	if !ok || string(d.Wait()) != "reserve\r\n" {
		t.Fatalf("it is detached: %v", ok)
	}
	p, ok := other.session.Detach()
	if !ok || string(p.Wait()) != "peek 2\r\n" {
		t.Fatalf("it is detached: %v", ok)
	}
	s.cold.late = 0
	s.Settle()
	if got := half.say(); got != "RESERVED 1 1\r\nx\r\n" {
		t.Errorf("who has half closed is told %q", got)
	}
	if n := s.engine.loads.Len(); n != 0 {
		t.Errorf("%d loads are left", n)
	}
}

// A wait with a time-out goes on with what is left of it when the job has gone.
func TestAReserveWhoseJobHasGoneWaitsOn(t *testing.T) {
	s := coldSim(1)
	defer s.engine.Discard()
	c, other := s.open(), s.open()
	other.say("put 0 0 9 1\r\nx")
	s.cold.late = 1 << 30
	c.say("reserve-with-timeout 5")
	s.Wait(2 * time.Second)
	other.told(t, "FLUSHED 1\r\n", "flush-tube default")
	s.cold.late = 0
	s.Settle()
	s.Wait(2900 * time.Millisecond)
	if got := c.say(); got != "" {
		t.Errorf("early it was told %q", got)
	}
	s.Wait(200 * time.Millisecond)
	if got := c.say(); got != "TIMED_OUT\r\n" {
		t.Errorf("it was told %q", got)
	}
}

// Large bodies come as well, and stay while they are sent.
func TestLargeBodiesComeBackAndStayWhileTheyAreSent(t *testing.T) {
	s := coldSim(1)
	defer s.engine.Discard()
	c := s.open()
	body := strings.Repeat("large", 10_000)
	c.say("put 0 0 9 50000\r\n" + body)
	if s.coldJobs() != 1 {
		t.Fatal("it is in memory")
	}
	c.told(t, "RESERVED_BATCH 1\r\nRESERVED 1 50000\r\n"+body+"\r\n", "reserve-batch 1")
	sh := s.engine.defaultTube.shard
	_, j := sh.find(1)
	s.cold.late = 1 << 30
	c.say("peek 1")
	s.engine.Loaded([]journal.Fetched{s.cold.read(j.fetch())})
	sh.mu.Lock()
	b := sh.pin(j, 0)
	sh.mu.Unlock()
	c.end()
	s.engine.evictTo(0, 0, everyEvict)
	if s.coldJobs() != 0 || string(b.Bytes) != body {
		t.Error("it has left while it is sent")
	}
	b.Release()
	s.engine.evictTo(0, 0, everyEvict)
	if s.coldJobs() != 1 {
		t.Error("it does not leave when it was sent")
	}
}

var errDisk = errors.Join(journal.ErrHangs)

// Dead letters by time-out have their bodies loaded, which takes a moment; one that cannot be read becomes ready.
func TestADeadLetterWaitsForItsBody(t *testing.T) {
	s := coldSim(1)
	defer s.engine.Discard()
	c, other := s.open(), s.open()
	other.say("set-tube default attempts=1 dead=d", "put 0 0 2 1\r\nx", "put 0 0 2 1\r\ny")
	c.say("reserve-batch 2")
	s.Settle()
	s.cold.fails = func(x journal.Fetch) error {
		if x.Lane != journal.Ahead {
			t.Errorf("it is asked for in lane %d", x.Lane)
		}
		if x.ID == 2 {
			return journal.ErrUnreadable
		}
		return nil
	}
	s.cold.late = 5
	s.Wait(1900 * time.Millisecond)
	alarms := 0
	for s.now < 5*clock.Second && s.engine.Snapshot(s.now).Reserved > 0 {
		alarms++
		s.Wait(time.Millisecond)
	}
	s.cold.late, s.cold.fails = 0, nil
	other.told(t, "FOUND 1 1\r\nx\r\n", "peek-tube d buried")
	other.told(t, "FOUND 2 1\r\ny\r\n", "peek-tube default ready")
	if n := s.engine.Snapshot(s.now); n.Timeouts != 2 || n.DeadLetters != 1 {
		t.Errorf("%d time-outs, %d dead letters", n.Timeouts, n.DeadLetters)
	}
}

// So do those of a release, at once, and of an expiry.
func TestADeadLetterOfAReleaseOrAnExpiryWaitsForItsBody(t *testing.T) {
	s := coldSim(1)
	defer s.engine.Discard()
	c := s.open()
	c.say("set-tube default attempts=1 dead=d", "put 0 0 9 1\r\nx", "put 0 0 9 1 exp:2\r\ny")
	c.told(t, "RESERVED 1 1\r\nx\r\nRELEASED\r\n", "reserve\r\nrelease 1 0 0")
	c.told(t, "FOUND 1 1\r\nx\r\n", "peek-tube d buried")
	s.Wait(3 * time.Second)
	c.told(t, "NOT_FOUND\r\n", "peek-tube default ready")
	c.told(t, "DELETED\r\nFOUND 2 1\r\ny\r\n", "delete 1\r\npeek-tube d buried")
}

// So do those of a client that has left, and of an orphan: nobody gets or adopts such a job meanwhile, and it becomes
// what it would have become at once.
func TestADeadLetterOfAClientThatHasLeftWaitsForItsBody(t *testing.T) {
	for name, x := range map[string]struct {
		set, end string
		timeouts uint64
		onRecord bool // and a standby knows what the leader does, at any time
	}{
		"disconnect":         {"attempts=1 dead=d disconnects=1", "close", 0, false},
		"quit while lingers": {"attempts=1 dead=d disconnects=1 linger=60", "quit", 0, false},
		"orphan":             {"attempts=1 dead=d disconnects=1 linger=1", "close", 0, false},
		"orphan times out":   {"attempts=1 dead=d linger=60", "close", 1, false},
		"lingers no more":    {"attempts=1 dead=d disconnects=1 linger=60", "unset", 0, false},

		"disconnect, on record":         {"attempts=1 dead=d disconnects=1", "close", 0, true},
		"quit while lingers, on record": {"attempts=1 dead=d disconnects=1 linger=60", "quit", 0, true},
		"orphan, on record":             {"attempts=1 dead=d disconnects=1 linger=1", "close", 0, true},
		"orphan times out, on record":   {"attempts=1 dead=d linger=60", "close", 1, true},
		"lingers no more, on record":    {"attempts=1 dead=d disconnects=1 linger=60", "unset", 0, true},
	} {
		s, agrees := coldSim(1), func() {}
		if x.onRecord {
			record := s.coldMember()
			agrees = func() { s.standbyAgrees(t, record) }
		}
		c, other := s.open(), s.open()
		other.say("set-tube default "+x.set, "put 0 0 5 1\r\nx", "put 0 0 5 1\r\ny")
		c.say("reserve-batch 2")
		s.Settle()
		s.cold.late = 3
		s.cold.fails = func(x journal.Fetch) error {
			if x.ID == 2 {
				return journal.ErrUnreadable
			}
			return nil
		}
		if x.end == "quit" {
			c.say("quit")
		}
		_ = c.Close()
		s.Settle()
		if x.end == "unset" {
			other.say("set-tube default linger=0")
		}
		if strings.HasPrefix(name, "orphan") {
			for s.orphaned() > 0 {
				s.Wait(time.Millisecond)
			}
		}
		if n := s.engine.Snapshot(s.now).Reserved; n == 0 || s.orphaned() != 0 {
			t.Errorf("%s: %d are reserved, %d orphaned", name, n, s.orphaned())
		}
		other.told(t, "NOT_FOUND\r\nTIMED_OUT\r\n", "touch 1", "reserve-with-timeout 0")
		agrees()
		rounds := 0
		for ; s.engine.Snapshot(s.now).Reserved > 0 && rounds < 1000; rounds++ {
			s.Wait(time.Millisecond)
		}
		s.cold.late, s.cold.fails = 0, nil
		agrees()
		other.told(t, "FOUND 1 1\r\nx\r\n", "peek-tube d buried")
		other.told(t, "FOUND 2 1\r\ny\r\n", "peek-tube default ready")
		if n := s.engine.Snapshot(s.now); n.DeadLetters != 1 || n.Timeouts != 2*x.timeouts {
			t.Errorf("%s: %d dead letters, %d time-outs", name, n.DeadLetters, n.Timeouts)
		}
		if list := s.engine.defaultTube.orphans; len(list) != 0 {
			t.Errorf("%s: %d lists are left", name, len(list))
		}
		census := census{engine: s.engine, sessions: []*Session{&other.session}}
		for _, err := range census.run() {
			t.Errorf("%s: %v", name, err)
		}
		s.engine.Discard()
	}
}
