package shard

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// workersOnRecord are clients of a member that have reserved a job each, from 1 on, in a tube that lingers for 10 seconds.
func workersOnRecord(t *testing.T, n int) (s *sim, record *tape, workers []*simConn) {
	s, record = newSim(100, 2), &tape{file: newFile(nil)}
	s.onRecord(record)
	s.open().expect(t, "TUBE_SET\r\n", "set-tube default linger=10\r\n")
	for i := range n {
		c := s.open()
		c.expect(t, fmt.Sprintf("INSERTED %d\r\nRESERVED %d 1\r\nx\r\n", i+1, i+1), "put 0 0 100 1\r\nx\r\nreserve\r\n")
		workers = append(workers, c)
	}
	return s, record, workers
}

// A session that goes on at the next leader has its job all the while. What one has that does not go on is an orphan,
// once.
func TestASessionGoesOnOrLeavesOrphansOnce(t *testing.T) {
	s, record, workers := workersOnRecord(t, 2)
	stays := workers[0].session.number()
	for _, c := range s.conns {
		c.ended = true
	}
	s.succeed(t, record)
	from := len(record.entries)
	c, err := s.comesBack(stays, plain, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.orphaned(); n != 0 || len(record.entries) != from {
		t.Errorf("%d orphans before it is known who goes on; recorded %q", n, record.since(from))
	}
	for range 2 {
		s.engine.CloseAbsent(1)
		s.Settle()
		if n, got := s.orphaned(), record.since(from); n != 1 || got != "h2 by 0 at 0, c3" {
			t.Errorf("%d orphans, recorded %q", n, got)
		}
	}
	c.expect(t, "TOUCHED\r\n", "touch 1\r\n")
	s.standbyAgrees(t, record)
	from = len(record.entries)
	s.Wait(10 * time.Second)
	c.expect(t, "RESERVED 2 1\r\nx\r\n", "reserve-with-timeout 0\r\n")
	if got := record.since(from); !strings.HasPrefix(got, "u2 ready, h2 by 2") {
		t.Errorf("recorded %q", got)
	}
	s.standbyAgrees(t, record)
}

// A number is gone when what its sessions have left is on record: nobody who takes over in between has it ready.
func TestOrphansAreOnRecordBeforeTheirNumberIsGone(t *testing.T) {
	for name, end := range map[string]func(*sim, []uint32) error{
		"of a member that is gone":     func(s *sim, n []uint32) error { _, err := s.engine.EndNumber(n[0]); return err },
		"of a process that is no more": func(s *sim, _ []uint32) error { _, _, err := s.engine.GiveNumbers(9, 2, 1); return err },
	} {
		t.Run(name, func(t *testing.T) {
			s, record := newSim(100, 2), &tape{file: newFile(nil)}
			s.onRecord(record)
			numbers, _, err := s.engine.GiveNumbers(9, 1, 1)
			if err != nil {
				t.Fatal(err)
			}
			s.ids = func(n int) uint64 { return sessionID(numbers[0], uint64(n)) }
			c := s.open()
			c.expect(t, "TUBE_SET\r\nINSERTED 1\r\nRESERVED 1 1\r\nx\r\n", "set-tube default linger=10\r\nput 0 0 100 1\r\nx\r\nreserve\r\n")
			c.leaves(t)
			from := len(record.entries)
			for n := 1; end(s, numbers) != nil; n++ {
				if s.Settle(); n > 3 {
					t.Fatal("the number does not end")
				}
			}
			s.Settle()
			if got := record.since(from); s.orphaned() != 1 || got != "h1 by 0 at 0, c1, n" {
				t.Errorf("%d orphans, recorded %q", s.orphaned(), got)
			}
			s.standbyAgrees(t, record)
		})
	}
}

// Who has lost a member connects to another one, which may hear of the end of the session much later: the job is
// adopted from that. Whoever works on is told so.
func TestWhatAnAbsentSessionHasIsAdopted(t *testing.T) {
	for line, want := range map[string]string{
		"delete 1":      "DELETED\r\n",
		"touch 1":       "TOUCHED\r\n",
		"release 1 0 0": "RELEASED\r\n",
		"bury 1 0":      "BURIED\r\n",
		"reserve-job 1": "RESERVED 1 1\r\nx\r\n",
	} {
		for _, linger := range []int{10, 0} {
			s, record, workers := workersOnRecord(t, 1)
			next := s.open()
			next.expect(t, "TUBE_SET\r\n", "set-tube default linger=%d\r\n", linger)
			next.expect(t, notFound, "%s\r\n", line)
			id := workers[0].leaves(t)
			if linger == 0 {
				next.expect(t, notFound, "%s\r\n", line)
				continue
			}
			next.expect(t, want, "%s\r\n", line)
			s.standbyAgrees(t, record)
			back, err := s.comesBack(id, plain, 0)
			if err != nil {
				t.Fatal(err)
			}
			back.expect(t, notFound, "touch 1\r\n")
			s.engine.CloseAbsent(1)
			s.standbyAgrees(t, record)
		}
	}
}

// Two clients that two members forward name an orphan in the same moment. One has it, and all members know which.
func TestOneOfTwoMembersClientsAdoptsAnOrphan(t *testing.T) {
	s, record, workers := workersOnRecord(t, 1)
	_ = workers[0].Close()
	a, b := s.open(), s.open()
	from := len(record.entries)
	a.expect(t, "TOUCHED\r\n", "touch 1\r\n")
	b.expect(t, notFound+notFound, "touch 1\r\ndelete 1\r\n")
	if got, want := record.since(from), fmt.Sprintf("h1 by %d at 9 touch", a.session.number()&(1<<40-1)); got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
	s.standbyAgrees(t, record)
	a.expect(t, "DELETED\r\n", "delete 1\r\n")
	s.standbyAgrees(t, record)
}

// A leader that hands over puts its own clients on record, which have reserved as nobody before. Those who follow find
// that in order, and the clients go on.
func TestALeadersOwnClientsGoOnWhereTheirTubeLingers(t *testing.T) {
	s, record := newSim(100, 1), &tape{file: newFile(nil)}
	s.engine.recordIn(heldTape{record})
	s.loops[0].Number(3, 0)
	c := s.open()
	c.expect(t, "TUBE_SET\r\nINSERTED 1\r\nRESERVED 1 1\r\nx\r\n", "set-tube default linger=10\r\nput 0 0 100 1\r\nx\r\nreserve\r\n")
	s.standbyAgrees(t, record)
	s.engine.Hold(true)
	var room atomic.Int64
	room.Store(1 << 20)
	if !c.session.Record(&room, s.now) {
		t.Fatal("it is not on record")
	}
	was, ok := c.session.DetachRecorded()
	if c.ended = true; !ok {
		t.Fatal("it does not go on")
	}
	s.follows(t, record)
	back, err := s.comesBack(was.ID(), was.Interests(), 0)
	if err != nil {
		t.Fatal(err)
	}
	back.expect(t, "DELETED\r\n", "delete 1\r\n")
	s.standbyAgrees(t, record)
}

// The reply to a reserve was lost with its connection, or with the server: nobody knows of the job until it has lingered.
// Then it is handed out, once.
func TestAJobWhoseReplyWasLostWaitsUntilItHasLingered(t *testing.T) {
	for name, lose := range map[string]func(*sim, *simConn, *tape){
		"with the connection": func(_ *sim, c *simConn, _ *tape) { _ = c.Close() },
		"with the leader": func(s *sim, _ *simConn, record *tape) {
			for _, c := range s.conns {
				c.ended = true
			}
			s.succeed(t, record)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, record := newSim(100, 1), &tape{file: newFile(nil)}
			s.engine.recordIn(heldTape{record})
			c := s.open()
			c.expect(t, "TUBE_SET\r\nINSERTED 1\r\n", "set-tube default linger=10\r\nput 0 0 100 1\r\nx\r\n")
			if err := c.Send([]byte("reserve\r\n")); err != nil {
				t.Fatal(err)
			}
			lose(s, c, record)
			a, b := s.open(), s.open()
			for _, w := range []*simConn{a, b} {
				if err := w.Send([]byte("reserve-with-timeout 20\r\n")); err != nil {
					t.Fatal(err)
				}
			}
			s.Wait(10*time.Second - 1)
			if got := a.took() + b.took(); got != "" {
				t.Fatalf("before it has lingered there is %q", got)
			}
			s.Wait(1)
			if got := a.took() + b.took(); got != "RESERVED 1 1\r\nx\r\n" {
				t.Fatalf("when it has lingered there is %q", got)
			}
			s.standbyAgrees(t, record)
		})
	}
}

// untilLinger are a journal that others read who know all but lingering.
type untilLinger struct{ heldTape }

func (untilLinger) RecordsLinger() bool { return false }

// While a member could not read it, nothing lingers, and nothing is on record of that.
func TestLingerIsRefusedWhileOthersCannotReadIt(t *testing.T) {
	s, record := newSim(100, 1), &tape{file: newFile(nil)}
	s.engine.recordIn(untilLinger{heldTape{record}})
	c := s.open()
	c.expect(t, "OUT_OF_MEMORY\r\nOUT_OF_MEMORY\r\n", "set-tube default linger=10\r\nset-tube default rate=5/1 linger=10\r\n")
	if len(record.entries) != 0 {
		t.Errorf("recorded %q", record.since(0))
	}
	if got := c.ask(t, "list-settings\r\n"); got != "OK 4\r\n---\n\r\n" {
		t.Errorf("the settings are %q", got)
	}
	c.expect(t, "TUBE_SET\r\nTUBE_SET\r\n", "set-tube default linger=0\r\nset-tube default retry-min=1 linger=\r\n")
	s.engine.recordIn(heldTape{record})
	c.expect(t, "TUBE_SET\r\n", "set-tube default linger=10\r\n")
}

// A setting by which jobs linger is about to have what is reserved on record when its client leaves: it is nevertheless.
func TestWhatIsReservedIsOnRecordAlsoIfWhoHasSetItLeaves(t *testing.T) {
	const n = 2 * roundBudget
	s, record := newSim(100, 1), &tape{file: newFile(nil)}
	s.engine.recordIn(heldTape{record})
	w := s.open()
	for range n {
		w.say("put 0 0 1000 1", "x", "reserve")
	}
	from := len(record.entries)
	c := s.open()
	c.held = true
	if err := c.Send([]byte("set-tube default linger=10\r\n")); err != nil {
		t.Fatal(err)
	}
	if got := c.took(); got != "" {
		t.Fatalf("it is done at once: %q", got)
	}
	_ = c.Close()
	s.Settle()
	holds := map[uint64]bool{}
	for _, x := range record.entries[from:] {
		if x.kind == 'h' {
			holds[x.hold.ID] = true
		}
	}
	if len(holds) != n {
		t.Errorf("%d of %d reservations are on record", len(holds), n)
	}
	s.standbyAgrees(t, record)
}
