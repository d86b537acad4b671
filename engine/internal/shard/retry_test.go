package shard

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/spread"
	"trellis/engine/stats"
)

func TestABackOffIsAsLongAsItsFormulaSays(t *testing.T) {
	for _, c := range []struct {
		id   uint64
		k    uint32
		want uint64
	}{{2, 1, 9918517}, {2, 2, 12568646}, {6, 1, 12412069}} {
		if got := spread.Mix(c.id+uint64(c.k)*spread.Golden) >> 40; got != c.want {
			t.Errorf("the random bits of attempt %d of job %d are %d, want %d", c.k, c.id, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := journal.DefaultPolicy
		p.RetryMin = among(t, "min", 1, 5, 1<<32-1, rapid.Uint32Min(1).Draw(t, "any min"))
		p.RetryMax = among(t, "max", 1, 3600, 1<<32-1, rapid.Uint32Min(1).Draw(t, "any max"))
		p.RetryFactor = rapid.Uint32Range(1, 10).Draw(t, "factor")
		p.RetryJitter = rapid.Uint32Range(0, 100).Draw(t, "jitter")
		id, k := rapid.Uint64().Draw(t, "id"), rapid.Uint32Range(1, 100).Draw(t, "attempts")
		if got, want := backOff(&p, id, k), modelBackOff(p, id, int(k)); got != want {
			t.Errorf("attempt %d of job %d, %s: %d ns, want %d", k, id, p.Pairs(), got, want)
		}
	})
	p := journal.DefaultPolicy
	p.RetryMin, p.RetryFactor = 1, 1
	if got := backOff(&p, 1, 1<<32-1); got < clock.Second || got > clock.Second+clock.Second/10 {
		t.Errorf("after many attempts it is %d ns", got)
	}
}

// modelBackOff is backOff, by the formula.
func modelBackOff(p journal.Policy, id uint64, attempts int) clock.Time {
	n := func(v uint64) *big.Int { return new(big.Int).SetUint64(v) }
	b := new(big.Int).Exp(n(uint64(p.RetryFactor)), n(uint64(attempts-1)), nil)
	b.Mul(b, n(uint64(p.RetryMin)))
	if most := n(uint64(max(p.RetryMin, p.RetryMax))); b.Cmp(most) > 0 {
		b = most
	}
	b.Mul(b, n(uint64(clock.Second)))
	z := id + uint64(attempts)*0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	more := new(big.Int).Mul(b, n(uint64(p.RetryJitter)*((z^z>>31)>>40)))
	b.Add(b, more.Div(more, n(100<<24)))
	return min(clock.Time(b.Uint64()), clock.Seconds(1<<32-1))
}

// digest is the digest of what a server would have that starts on the file.
func (f *file) digest(t *testing.T) journal.Digest {
	t.Helper()
	e := New(Config{Info: testInfo, Shards: 1})
	defer e.Discard()
	if err := f.tell(e.Follow(clock.Always)); err != nil {
		t.Fatal(err)
	}
	return e.digestAt(t, clock.MaxTime)
}

// Memory never says what the record does not: others follow it.
func TestABackOffThatFindsNoRoomIsRefusedOrDoesNotBegin(t *testing.T) {
	for name, end := range map[string]func(s *sim, c *simConn){
		"release":    func(_ *sim, c *simConn) { c.expect(t, "OUT_OF_MEMORY\r\nTOUCHED\r\n", "release 1 0 0\r\ntouch 1\r\n") },
		"time-out":   func(s *sim, _ *simConn) { s.Wait(time.Second) },
		"disconnect": func(s *sim, c *simConn) { _ = c.Close(); s.Settle() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(100, 1)
			f := newFile(nil)
			s.engine.log.Journal = f
			c, other := s.open(), s.open()
			c.expect(t, "TUBE_SET\r\nINSERTED 1\r\nRESERVED 1 1\r\na\r\n", "set-tube default retry-min=5 disconnects=1\r\nput 0 0 1 1\r\na\r\nreserve\r\n")
			f.err = journal.ErrNoSpace
			end(s, c)
			n := s.engine.Snapshot(s.now)
			if want := 1; name == "release" && n.Reserved != want || name != "release" && n.Ready != want {
				t.Errorf("%d reserved, %d ready, %d delayed", n.Reserved, n.Ready, n.Delayed)
			}
			if n.RetriesReleased+n.RetriesTimedOut+n.RetriesDisconnected != 0 {
				t.Error("it counts as a retry")
			}
			if ours, theirs := s.engine.digestAt(t, clock.MaxTime), f.digest(t); ours != theirs {
				t.Errorf("the digest is %v, that of the record is %v", ours, theirs)
			}
			if f.err = nil; name == "release" {
				return
			}
			// The attempt counts, in memory.
			other.expect(t, "RESERVED 1 1\r\na\r\nRELEASED\r\n", "reserve\r\nrelease 1 0 0\r\n")
			if r := f.jobs[1].record; r.Attempts != 2 || r.State != journal.Delayed || r.Delay < 10 {
				t.Errorf("on record is %+v", r)
			}
			s.check(t)
		})
	}
}

func TestEveryCauseOfABackOffIsOnRecord(t *testing.T) {
	s := newSim(100, 1)
	f := newFile(nil)
	s.engine.log.Journal = f
	c, other := s.open(), s.open()
	c.expect(t, "TUBE_SET\r\nINSERTED 1\r\n", "set-tube default retry-min=5 retry-jitter=0 disconnects=1\r\nput 0 0 1 1\r\na\r\n")
	for attempt, end := range []func(){
		func() { c.expect(t, "RELEASED\r\n", "release 1 0 0\r\n") },
		func() { s.Wait(time.Second) },
		func() { _ = c.Close() },
	} {
		c.expect(t, "RESERVED 1 1\r\na\r\n", "reserve-job 1\r\n")
		at := s.now
		end()
		s.Settle()
		wait := 5 * time.Second << attempt
		r := f.jobs[1].record
		if r.State != journal.Delayed || r.Attempts != uint32(attempt+1) || r.Delay != uint32(wait/time.Second) || r.Due < s.engine.wall(at)+int64(wait) {
			t.Errorf("after attempt %d on record is %+v", attempt+1, r)
		}
	}
	if n := s.engine.Snapshot(s.now); n.RetriesReleased != 1 || n.RetriesTimedOut != 1 || n.RetriesDisconnected != 1 || n.Timeouts != 1 {
		t.Errorf("it counts %+v", n)
	}
	// A reply that tells that there is no job depends on the record that made it so.
	f.committed = 0
	if other.expect(t, "TIMED_OUT\r\n", "reserve-with-timeout 0\r\n"); other.out.Pos != f.pos {
		t.Errorf("that there is no job depends on %d, not on %d", other.out.Pos, f.pos)
	}
	s.check(t)
}

func TestAServerThatStopsCountsNoAttempt(t *testing.T) {
	s := newSim(100, 1)
	f := newFile(nil)
	s.engine.log.Journal = f
	c := s.open()
	c.expect(t, "TUBE_SET\r\nINSERTED 1\r\nRESERVED 1 1\r\na\r\n", "set-tube default attempts=1 retry-min=5 disconnects=1\r\nput 0 0 9 1\r\na\r\nreserve\r\n")
	before := f.pos
	s.loops[0].Stop()
	_ = c.Close()
	s.Settle()
	if n := s.engine.Snapshot(s.now); n.Ready != 1 || f.pos != before {
		t.Errorf("%d ready, %d buried, %d delayed; %d bytes are recorded", n.Ready, n.Buried, n.Delayed, f.pos-before)
	}
	if x := f.jobs[1].record; x.Attempts != 0 {
		t.Errorf("on record is %+v", x)
	}
}

// The jobs of a client that has gone are judged in slices, each with its record, and others have
// their turns.
func TestManyReservationsOfAClientThatHasGoneAreJudgedInTurns(t *testing.T) {
	const jobs, size = 2500, 4000
	for name, x := range map[string]struct {
		keys   string
		want   func(n *stats.Server) int
		rounds int // at least
	}{
		"back-off": {"retry-min=5", func(n *stats.Server) int { return n.Delayed }, 1},
		// Bodies are copied.
		"dead letters": {"attempts=1 dead=%s", func(n *stats.Server) int { return n.Buried }, jobs * size / deadMoveBytes / roundBudget},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(size, 1)
			f := newFile(nil)
			s.engine.log.Journal = f
			c := s.open()
			from, to := s.engine.tubeIn(2, "from"), s.engine.tubeIn(1, "to")
			c.ask(t, "set-tube %s disconnects=1 %s\r\n", from, strings.ReplaceAll(x.keys, "%s", to))
			c.ask(t, "use %s\r\nwatch %s\r\n", from, from)
			body := strings.Repeat("x", size)
			for range jobs {
				c.ask(t, "put 0 0 100 %d\r\n%s\r\n", size, body)
			}
			for range jobs / 500 {
				c.ask(t, "reserve-batch 500\r\n")
			}
			if n := s.engine.Snapshot(s.now); n.Reserved != jobs {
				t.Fatalf("%d are reserved", n.Reserved)
			}
			l := slow(t, s)
			l.round()
			if c.ended = true; c.session.Close(s.now) {
				t.Fatal("the close of a client with many reservations does not mind that the round is over")
			}
			if n := l.rounds(); n < x.rounds || l.most > roundBudget+roundBudget/4 {
				t.Errorf("%d rounds, of up to %d steps", n, l.most)
			}
			n := s.engine.Snapshot(s.now)
			if got := x.want(n); got != jobs || n.Connections != 0 {
				t.Errorf("%d of %d jobs, %d connections", got, jobs, n.Connections)
			}
			for id, j := range f.jobs {
				if j.record.Attempts != 1 {
					t.Fatalf("of job %d on record is %+v", id, j.record)
				}
			}
			s.check(t)
		})
	}
}

// A cluster learns of the session's end before it learns what that makes of its jobs.
func TestTheEndOfASessionOnRecordComesBeforeWhatItMakesOfItsJobs(t *testing.T) {
	s, record := recordedSim()
	c := s.open()
	c.say("set-tube default disconnects=1 retry-min=5", "put 0 0 9 1", "x", "put 0 0 9 1", "y", "reserve-batch 2")
	from := len(record.entries)
	_ = c.Close()
	if got, want := record.since(from), "c1, u1 delayed, u2 delayed"; got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
	standby := New(Config{Info: testInfo, Shards: 4})
	defer standby.Discard()
	f := standby.Follow(clock.Always)
	f.Strict()
	f.feed(t, record.entries)
	if ours, theirs := s.engine.digestAt(t, clock.MaxTime), standby.digestAt(t, clock.MaxTime); ours != theirs || standby.Contradictions() != 0 {
		t.Errorf("the digest is %v, the standby's %v; %d contradictions", ours, theirs, standby.Contradictions())
	}
}

// olderMembers are a journal that others read who know no policies.
type olderMembers struct{ heldTape }

func (olderMembers) RecordsAll() bool { return false }

func (olderMembers) RecordsLinger() bool { return false }

func TestWhatOthersCannotReadIsRefused(t *testing.T) {
	s, record := recordedSim()
	s.engine.recordIn(olderMembers{heldTape{record}})
	c := s.open()
	c.expect(t, "OUT_OF_MEMORY\r\nOUT_OF_MEMORY\r\nDLQ_SET\r\n", "set-tube t retry-min=1\r\nset-tube t attempts=1 dead=d\r\nset-dlq t 3 d\r\n")
	if list := c.ask(t, "capabilities\r\n"); strings.Contains(list, "set-tube") || !strings.Contains(list, "set-dlq") {
		t.Errorf("capabilities are %s", list)
	}
	s.engine.recordIn(heldTape{record})
	c.expect(t, "TUBE_SET\r\n", "set-tube t retry-min=1\r\n")
	if list := c.ask(t, "capabilities\r\n"); !strings.Contains(list, "- set-tube\n") {
		t.Errorf("capabilities are %s", list)
	}
}
