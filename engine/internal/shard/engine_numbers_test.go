package shard

import (
	"errors"
	"fmt"
	"testing"

	"trellis/binlog/journal"
)

// Whoever asks twice has the same numbers, and no number is ever given twice.
func TestNumbersAreGivenToLoopsOnce(t *testing.T) {
	s, record := recordedSim()
	e := s.engine
	for _, x := range []struct {
		member, nonce uint64
		n             int
		want          string
	}{
		{7, 1, 3, "[1 2 3]"},
		{8, 1, 2, "[4 5]"},
		{7, 1, 3, "[1 2 3]"}, // again
		{7, 1, 2, "[1 2]"},
		{7, 1, 4, "[1 2 3 6]"},
		{7, 2, 2, "[7 8]"}, // has restarted
		{8, 1, 2, "[4 5]"},
		{7, 2, 0, "[]"},
	} {
		from := len(record.entries)
		list, pos, err := e.GiveNumbers(x.member, x.nonce, x.n)
		if got := fmt.Sprint(list); err != nil || got != x.want || len(record.entries) > from && pos != record.pos {
			t.Errorf("member %d with nonce %d has the numbers %s at %d, want %s; %v", x.member, x.nonce, got, pos, x.want, err)
		}
		for _, number := range list {
			if member, nonce := e.NumberOf(number); member != x.member || nonce != x.nonce {
				t.Errorf("number %d is that of member %d with nonce %d, want %d with %d", number, member, nonce, x.member, x.nonce)
			}
		}
	}
	for _, number := range []uint32{0, 1, 6, 9} {
		if member, nonce := e.NumberOf(number); member != 0 || nonce != 0 {
			t.Errorf("number %d is that of member %d with nonce %d, want nobody's", number, member, nonce)
		}
	}
	if _, _, err := e.GiveNumbers(9, 1, 1<<journal.NumberBits-8); !errors.Is(err, ErrNoNumbers) {
		t.Errorf("more numbers than there are: %v", err)
	}
	if _, _, err := e.GiveNumbers(9, 1, 1<<32+1); !errors.Is(err, ErrNoNumbers) {
		t.Errorf("many more: %v", err)
	}
	for _, nobody := range [][2]uint64{{0, 1}, {9, 0}} {
		if _, _, err := e.GiveNumbers(nobody[0], nobody[1], 1); !errors.Is(err, ErrNoNumbers) {
			t.Errorf("member %d with nonce %d: %v", nobody[0], nobody[1], err)
		}
	}
	record.err = journal.ErrFailed
	if list, _, err := e.GiveNumbers(9, 1, 1); !errors.Is(err, journal.ErrFailed) {
		t.Errorf("without a record, numbers %v: %v", list, err)
	}
	record.err = nil
	if list, _, err := e.GiveNumbers(9, 1, 1); err != nil || fmt.Sprint(list) != "[9]" {
		t.Errorf("and then %v: %v", list, err)
	}
	e.recordIn(withoutHolds{heldTape{record}})
	if _, _, err := e.GiveNumbers(9, 1, 1); !errors.Is(err, ErrNoHolds) {
		t.Errorf("where nobody could read it: %v", err)
	}
}

// A hold behind the record by which the session's number is gone would be nobody's.
func TestNumbersAreNotGoneBeforeTheirSessionsHaveEnded(t *testing.T) {
	s, record := recordedSim()
	e := s.engine
	if _, _, err := e.GiveNumbers(7, 1, 2); err != nil {
		t.Fatal(err)
	}
	s.ids = func(n int) uint64 { return sessionID(2, uint64(n)) }
	c, producer := s.open(), s.open()
	c.say("reserve")
	sh := e.defaultTube.shard
	sh.lock(c.loop.by(), s.now)
	if !c.session.client.claim() { // by another loop, which has not reserved the job yet
		t.Fatal("the session does not wait")
	}
	to, waiter := c.session.client.set(), c.session.client.watched[0].waiter
	c.session.client.watched[0].dequeue()
	sh.unlock(c.loop.by())
	c.session.Close(s.now)
	c.ended = true
	producer.say("put 0 0 9 1", "x")
	again := func(when string, want error) {
		t.Helper()
		from := len(record.entries)
		if _, _, err := e.GiveNumbers(7, 2, 2); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", when, err, want)
		}
		if gone := len(record.entries) > from; gone != (want == nil) {
			t.Errorf("%s: it is recorded that the numbers are gone: %v", when, gone)
		}
		if there := e.NumberPresent(2); there != (want != nil) {
			t.Errorf("%s: something is under way for the number: %v", when, there)
		}
	}
	again("a session has closed, and is claimed", ErrSessionsLeft)
	_ = producer.Close()
	again("another one has ended", ErrSessionsLeft)
	if _, _, err := e.GiveNumbers(7, 1, 3); err != nil {
		t.Errorf("the process itself gets more: %v", err)
	}
	sh.lock(c.loop.by(), s.now)
	r, j := sh.find(1)
	pos, err := sh.reserve(to, r, j)
	if err != nil {
		t.Fatal(err)
	}
	waiter.Deliver(c.loop.by(), 1, pos)
	sh.unlock(c.loop.by())
	c.loop.Wake()
	s.Settle()
	again("it has ended", nil)
	var x Session
	if err := c.loop.OpenAs(&x, sessionID(2, 9), nil, 0); !errors.Is(err, ErrNumberGone) {
		t.Errorf("a session of a number that is gone: %v", err)
	}
	if err := c.loop.OpenAs(&x, sessionID(4, 9), nil, 0); err != nil {
		t.Errorf("a session of the next process: %v", err)
	}
}
