package shard

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
)

// unread is a journal that not all who read it may be told of terms.
type unread struct {
	heldTape
	reads bool
}

func (u *unread) RecordsAll() bool { return u.reads }

func (u *unread) RecordsLinger() bool { return u.reads }

// A put that others could not read is refused when all of its body has come, and nothing of that
// is executed. Puts without terms are accepted.
func TestTermsAreRefusedWhileNotAllCanReadThem(t *testing.T) {
	log := &unread{heldTape: heldTape{&tape{file: newFile(nil)}}}
	s := newSim(65535, 1)
	s.engine.recordIn(log)
	c := s.open()
	body := strings.Repeat("list-tubes\r\n", 600)
	for _, tags := range []string{"fair:f", "grp:g", "aft:g:settled", "exp:9", "idp:k con:c exp:9"} {
		c.expect(t, "OUT_OF_MEMORY\r\n", "put 0 0 9 1 %s\r\nx\r\n", tags)
		c.expect(t, "", "put 0 0 9 %d %s\r\n%s", len(body), tags, body[:len(body)/2])
		c.expect(t, "OUT_OF_MEMORY\r\n", "%s\r\n", body[len(body)/2:])
	}
	if len(log.entries) > 0 {
		t.Errorf("%d records", len(log.entries))
	}
	c.expect(t, "INSERTED 1\r\n", "put 0 0 9 1 idp:k con:c exp:0\r\nx\r\n")
	c.expect(t, "INSERTED 1 READY\r\n", "put 0 0 9 1 idp:k\r\nx\r\n")
	log.reads = true
	c.expect(t, "INSERTED 3\r\n", "put 0 0 9 1 exp:900 fair:f aft:g:settled grp:h\r\nx\r\n")
	want := journal.Keys{Terms: &journal.Terms{Fair: "f", Group: "h", After: "g", Settled: true, Expires: 900}}
	if got := log.jobs[3].full.Keys; !got.Equal(&want) {
		t.Errorf("recorded %+v", got)
	}
	s.noErrors(t)
}

// Terms are the same after all that makes a full record of a job, or reads one.
func TestTermsGoAlongWithTheirJob(t *testing.T) {
	s := newSim(65535, 1)
	record := &tape{file: newFile(nil)}
	s.engine.recordIn(record)
	c := s.open()
	terms := &journal.Terms{Fair: "f", Group: "h", After: "g", Settled: true, Expires: 900}
	want := journal.Keys{Unique: "k", Seconds: 9, Limited: "c", Limit: 1, Terms: terms}
	c.expect(t, "INSERTED 1\r\nINSERTED 2\r\n", "put 0 0 9 1 exp:900 idp:k:9 fair:f aft:g:settled con:c grp:h\r\nx\r\nput 0 0 9 1 grp:i\r\nx\r\n")
	has := func(id uint64, want *journal.Keys) {
		t.Helper()
		locks := Tx{shared: s.engine.Shards}
		sh, _, j := s.engine.lockJob(&locks, id, s.now)
		defer sh.unlock(&locks)
		if got := sh.keysOf(j); !got.Equal(want) || !record.jobs[id].full.Keys.Equal(want) {
			t.Errorf("job %d has %+v, on record %+v", id, got, record.jobs[id].full.Keys)
		}
	}
	has(1, &want)
	for i := range 40 { // in several shards
		c.expect(t, "MOVED\r\n", "move-job 1 t%d\r\n", i)
		has(1, &want)
	}
	c.expect(t, "DLQ_SET\r\nRESERVED 1 1\r\nx\r\nRELEASED\r\n", "set-dlq t39 1 dead\r\nreserve-job 1\r\nrelease 1 0 0\r\n")
	has(1, &want)
	if err := s.engine.Migrate(1, journal.Place{Segment: record.jobs[1].segment}, nil); err != nil {
		t.Fatal(err)
	}
	has(1, &want)
	_, err := s.engine.Walk(1, 1, func(r *journal.Record, _ *journal.Hold) error {
		if !r.Keys.Equal(&want) {
			t.Errorf("the walk shows %+v", r.Keys)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	has(2, &journal.Keys{Terms: &journal.Terms{Group: "i"}})

	f := New(Config{}).Follow(clock.Always)
	for range 2 { // a record may come twice, and a later one may differ in its terms only
		for _, x := range []*journal.Record{&record.jobs[1].full, &record.jobs[2].full} {
			if _, err := f.Full(x, journal.Place{Segment: 1}); err != nil {
				t.Fatal(err)
			}
			sh, _, j := f.lockJob(x.ID)
			if got := sh.keysOf(j); !reflect.DeepEqual(got, x.Keys) {
				t.Errorf("followed as %+v, want %+v", got, x.Keys)
			}
			sh.unlock(&f.tx)
			x.Keys.Terms = &journal.Terms{Fair: "other"}
		}
	}
	c.expect(t, "DELETED\r\nUSING dead\r\nINSERTED 1 DELETED\r\n", "delete 1\r\nuse dead\r\nput 0 0 9 1 idp:k\r\nx\r\n")
	s.noErrors(t)
}

// What a tag takes is not taken from those who have none, and what keys take does not grow.
func TestTermsTakeWhatTheyAreCountedFor(t *testing.T) {
	if got := unsafe.Sizeof(keyed{}); got != 112 {
		t.Errorf("the record of a job's keys has %d bytes", got)
	}
	if got := unsafe.Sizeof(terms{}); got > 96 {
		t.Errorf("terms have %d bytes", got)
	}
	if got := termsFootprint(&journal.Terms{Expires: 1}); got < 56 || got > 120 {
		t.Errorf("terms are counted for %d bytes", got)
	}
	keys := &journal.Keys{Unique: "k", Terms: &journal.Terms{Group: "g"}}
	least := jobFootprint(0, keys)
	if more := least - jobFootprint(0, &journal.Keys{Unique: "k"}); more < 56 {
		t.Errorf("a job with terms is counted for %d bytes more", more)
	}
	s := newLimitedSim(65535, 1, Limits{Memory: 4 * least})
	c := s.open()
	for id := 1; id <= 3; id++ {
		c.expect(t, fmt.Sprintf("INSERTED %d\r\n", id), "put 0 0 9 0 idp:k%d grp:g\r\n\r\n", id)
	}
	used := s.engine.memory.Used()
	for id := 1; id <= 3; id++ {
		c.expect(t, "DELETED\r\n", "delete %d\r\n", id)
	}
	if left := s.engine.memory.Used(); left != 0 || used < 3*least {
		t.Errorf("%d bytes are counted for three jobs, %d for none", used, left)
	}
	s.noErrors(t)
}
