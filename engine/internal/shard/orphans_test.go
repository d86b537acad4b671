package shard

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/stats"
)

// orphansOf has n workers lose their connections, each with a job, in a tube that lingers for 10 seconds. The jobs
// are those from 1 to n.
func orphansOf(t *testing.T, s *sim, n int) {
	t.Helper()
	c := s.open()
	c.expect(t, "TUBE_SET\r\n", "set-tube default linger=10\r\n")
	for i := range n {
		w := s.open()
		w.expect(t, fmt.Sprintf("INSERTED %d\r\nRESERVED %d 0\r\n\r\n", i+1, i+1), "put 0 0 1000 0\r\n\r\nreserve\r\n")
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// orphaned is how many orphans the default tube has.
func (s *sim) orphaned() (n int) {
	s.engine.EachTube(s.now, func(x *stats.Tube) { n += x.Orphaned })
	return n
}

// A host with very many workers dies, and all of its jobs end in the same moment: others have their turn, and nothing
// is left of the sessions, nor of the orphans.
func TestVeryManyOrphansLetOthersHaveTheirTurn(t *testing.T) {
	const n = 2*maxMoves + maxMoves/2
	for name, end := range map[string]func(s *sim){
		"by time": func(s *sim) { s.now += 10 * clock.Second },
		"by the setting": func(s *sim) {
			s.open().expect(t, "TUBE_SET\r\n", "set-tube default none\r\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(100, 1)
			orphansOf(t, s, n)
			if got := s.orphaned(); got != n {
				t.Fatalf("%d orphans, want %d", got, n)
			}
			for _, sh := range s.engine.shards {
				if lists := len(sh.reservations) - 1 - len(sh.freeReservations); lists > 1 {
					t.Errorf("there are %d lists of reservations", lists)
				}
			}
			other := s.open()
			end(s)
			for turn := 1; turn <= 3; turn++ {
				other.expect(t, "NOT_FOUND\r\n", "peek-buried\r\n")
				if got, want := s.engine.Snapshot(s.now).Ready, min(n, turn*maxMoves); got > want {
					t.Fatalf("%d jobs are ready after %d turns, want %d", got, turn, want)
				}
				s.now++
			}
			s.Wait(time.Millisecond)
			if got := s.engine.Snapshot(s.now).Ready; got != n {
				t.Errorf("%d of %d jobs are ready", got, n)
			}
			for _, sh := range s.engine.shards {
				if lists := len(sh.reservations) - 1 - len(sh.freeReservations); lists != 0 {
					t.Errorf("%d lists of reservations are left", lists)
				}
			}
		})
	}
}

// Of clients on several loops that name an orphan at once, one has it.
func TestOneOfThoseWhoNameAnOrphanAtOnceAdoptsIt(t *testing.T) {
	const jobs = 300
	crew := newCrew(t, 4, 4)
	lost := crew.hire()
	lost.use("default")
	if reply := lost.do(codec.Command{Op: codec.OpSetTube, Tube: []byte("default"), Pairs: lingering(86_400)}); reply != codec.ReplyTubeSet {
		t.Fatal(reply)
	}
	ids := make([]uint64, jobs)
	for i := range ids {
		ids[i] = lost.put(1, 0, 1e9, "x")
		if id, _ := lost.reserve(); id != ids[i] {
			t.Fatalf("job %d was reserved, want %d", id, ids[i])
		}
	}
	lost.close()
	var had, deleted atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		h := crew.hire()
		all.Go(func() {
			for _, id := range ids {
				if h.with(codec.OpTouch, id) == codec.ReplyTouched {
					had.Add(1)
					if h.with(codec.OpDelete, id) == codec.ReplyDeleted {
						deleted.Add(1)
					}
				}
			}
			h.close()
		})
	}
	all.Wait()
	if had.Load() != jobs || deleted.Load() != jobs {
		t.Errorf("%d jobs were adopted %d times and deleted %d times", jobs, had.Load(), deleted.Load())
	}
	crew.stop()
}

// lingering are the pairs of a set-tube.
func lingering(seconds uint32) *codec.Pairs {
	p := new(codec.Pairs)
	p.Given[codec.KeyLinger], p.Values[codec.KeyLinger] = true, seconds
	return p
}

// A job that was on its way to a client that has gone is for others at once: its client knows nothing of it.
func TestAJobThatNobodyWasToldOfDoesNotLinger(t *testing.T) {
	for what, onRecord := range map[string]bool{"": false, "on record": true, "and the server stops": true} {
		s := newSim(100, 1)
		record := &tape{file: newFile(nil)}
		if onRecord {
			s.onRecord(record)
		}
		c, w, next := s.open(), s.open(), s.open()
		c.expect(t, "TUBE_SET\r\n", "set-tube default linger=10\r\n")
		w.held = true
		if err := w.Send([]byte("reserve\r\n")); err != nil {
			t.Fatal(err)
		}
		c.expect(t, "INSERTED 1\r\n", "put 0 0 9 1\r\na\r\n")
		if what == "and the server stops" {
			w.loop.Stop()
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		next.expect(t, "RESERVED 1 1\r\na\r\n", "reserve-with-timeout 0\r\n")
		if n := s.orphaned(); n != 0 {
			t.Errorf("%s: %d orphans", what, n)
		}
		if onRecord {
			s.standbyAgrees(t, record)
		}
	}
}

// Clients of an account adopt its orphans, and those of nobody. Clients of no account adopt all.
func TestOrphansAreAdoptedInTheirAccount(t *testing.T) {
	grant := func(name, account string) *Grant { return NewGrant(name, RightAll, []string{"*"}).In(account) }
	for _, x := range []struct {
		had, comes string
		adopts     bool
	}{{"a", "a", true}, {"a", "b", false}, {"a", "", true}, {"", "b", true}, {"", "", true}} {
		s := newSim(100, 1)
		w := s.openAs(grant("w", x.had))
		w.expect(t, "TUBE_SET\r\nINSERTED 1\r\nRESERVED 1 1\r\nx\r\n", "set-tube default linger=10\r\nput 0 0 9 1\r\nx\r\nreserve\r\n")
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"reserve-job 1", "touch 1", "bury 1 0"} {
			c := s.openAs(grant("other", x.comes))
			want := map[string]string{"reserve-job 1": "RESERVED 1 1\r\nx\r\n", "touch 1": "TOUCHED\r\n", "bury 1 0": "BURIED\r\n"}[line]
			if !x.adopts {
				want = notFound
			}
			c.expect(t, want, "%s\r\n", line)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if !x.adopts {
				continue
			}
			// From now on it is the orphan of the client that has adopted it.
			x.had = x.comes
		}
	}
}
