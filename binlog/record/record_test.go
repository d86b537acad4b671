package record

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"trellis/binlog/journal"
)

func testRecord(id uint64, body int) *journal.Record {
	return &journal.Record{
		ID: id, State: journal.Ready, Pri: uint32(id % 7), TTR: 60, Created: 1_700_000_000_000_000_000 + int64(id),
		Tube: "default", Body: bytes.Repeat([]byte{byte('a' + id%26)}, body),
	}
}

func sameRecord(a, b *journal.Record) bool {
	x, y := *a, *b
	x.Body, y.Body = nil, nil
	return fmt.Sprint(x) == fmt.Sprint(y) && bytes.Equal(a.Body, b.Body)
}

// Records come out as they went in.
func TestRecordsOfAnyContentAreKept(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := journal.Record{
			ID: rapid.Uint64Min(1).Draw(rt, "id"), State: rapid.SampledFrom([]journal.State{journal.Ready, journal.Buried, journal.Delayed}).Draw(rt, "state"),
			Pri: rapid.Uint32().Draw(rt, "pri"), Delay: rapid.Uint32().Draw(rt, "delay"), TTR: rapid.Uint32().Draw(rt, "ttr"),
			Created: rapid.Int64().Draw(rt, "created"), Reserves: rapid.Uint32().Draw(rt, "reserves"),
			Timeouts: rapid.Uint32().Draw(rt, "timeouts"), Releases: rapid.Uint32().Draw(rt, "releases"),
			Buries: rapid.Uint32().Draw(rt, "buries"), Kicks: rapid.Uint32().Draw(rt, "kicks"),
			Tube: rapid.StringMatching(`[a-z]{1,200}`).Draw(rt, "tube"),
			Body: rapid.SliceOf(rapid.Byte()).Draw(rt, "body"),
		}
		if rapid.Bool().Draw(rt, "never kicked") {
			r.Kicks = 0
		}
		if r.Attempts = r.UsualAttempts(); rapid.Bool().Draw(rt, "unusual attempts") {
			r.Attempts = rapid.Uint32().Draw(rt, "attempts")
		}
		r.Keys = someKeys(rt)
		if rapid.IntRange(0, 5).Draw(rt, "tombstone") == 5 && r.Keys.Tombstone() != (journal.Keys{}) {
			r.State, r.Body, r.Keys = journal.Deleted, nil, r.Keys.Tombstone()
		}
		setWhen(&r, rapid.Uint64().Draw(rt, "when"))
		if !Valid(&r) {
			rt.Fatalf("%+v is not valid", r)
		}
		b := make([]byte, r.Size())
		EncodeFull(b, 7, &r)
		n, p, what := plausible(b, int64(len(b)), 7)
		if what == "" {
			what = check(b, p) + impossible(b, 1)
		}
		var got journal.Record
		DecodeFull(b, &got, &Names{})
		if body := b[BodyOffset(b):][:len(r.Body)]; what != "" || n != int64(len(b)) || !sameRecord(&got, &r) || !bytes.Equal(body, r.Body) {
			rt.Fatalf("%s: got %+v, want %+v", what, got, r)
		}
		if r.State == journal.Deleted {
			return
		}
		u := make([]byte, SizeOfUpdate(&r))
		EncodeUpdate(u, 7, &r)
		if n, p, what = plausible(u, int64(len(u)), 7); what == "" {
			what = check(u, p) + impossible(u, 1)
		}
		if what != "" || n != int64(len(u)) {
			rt.Fatalf("update: %s, %d bytes", what, n)
		}
		DecodeUpdate(u, &got)
		got.Tube, got.Body, got.TTR, got.Created, got.Keys = r.Tube, r.Body, r.TTR, r.Created, r.Keys
		if !sameRecord(&got, &r) {
			rt.Fatalf("update: got %+v, want %+v", got, r)
		}
	})
}

func TestSettingsAreKept(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := journal.Setting{
			Tube:        rapid.StringMatching(`[a-z]{1,200}`).Draw(rt, "tube"),
			MaxAttempts: rapid.Uint32().Draw(rt, "most"),
		}
		if s.MaxAttempts > 0 {
			s.DeadTube = rapid.StringMatching(`[a-z]{1,200}`).Draw(rt, "dead tube")
		}
		if !ValidSetting(&s) {
			rt.Fatalf("%+v is not valid", s)
		}
		b := bytes.Repeat([]byte{0xff}, int(SettingSize(&s)))
		EncodeSetting(b, 7, &s)
		n, p, what := plausible(b, int64(len(b)), 7)
		if what == "" {
			what = check(b, p) + impossible(b, 1)
		}
		if got := DecodeSetting(b); what != "" || n != int64(len(b)) || got != s {
			rt.Fatalf("%s: got %+v, want %+v", what, got, s)
		}
	})
}

// What a record need not say is not said, so that a program of before can read it.
func TestOnlyUnusualAttemptsAreRecorded(t *testing.T) {
	for name, x := range map[string]struct {
		timeouts, releases, kicks, attempts uint32
		plain                               bool
	}{
		"fresh":                       {plain: true},
		"never kicked":                {timeouts: 2, releases: 3, attempts: 5, plain: true},
		"kicked":                      {timeouts: 2, releases: 3, kicks: 1, plain: true},
		"kicked, and tried again":     {timeouts: 2, releases: 4, kicks: 1, attempts: 1},
		"kicked after a few restarts": {timeouts: 2, releases: 4, attempts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := testRecord(1, 20)
			r.Timeouts, r.Releases, r.Kicks, r.Attempts = x.timeouts, x.releases, x.kicks, x.attempts
			full, update := make([]byte, r.Size()), make([]byte, SizeOfUpdate(r))
			EncodeFull(full, 7, r)
			EncodeUpdate(update, 7, r)
			if (full[68]&flags == 0) != x.plain || (update[52]&flags == 0) != x.plain {
				t.Errorf("flags %x and %x, want none: %v", full[68]&flags, update[52]&flags, x.plain)
			}
		})
	}
}

// The lengths of records would not be known if what could be left out were there.
func TestAttemptsThatAreRecordedForNothingAreImpossible(t *testing.T) {
	r := testRecord(1, 20)
	r.Releases, r.Attempts = 3, 1
	full, update := make([]byte, r.Size()), make([]byte, SizeOfUpdate(r))
	EncodeFull(full, 7, r)
	EncodeUpdate(update, 7, r)
	le.PutUint32(full[fullFixed:], 3)
	le.PutUint32(update[UpdateSize:], 3)
	for _, b := range [][]byte{full, update} {
		if impossible(b, 1) == "" {
			t.Errorf("a %v record with attempts that need not be there is possible", KindOf(b))
		}
	}
}

func TestNamesHaveALimit(t *testing.T) {
	var names Names
	b := make([]byte, 8)
	for n := range uint64(2*maxNames + 1) {
		le.PutUint64(b, n)
		if s := names.Get(b); s != string(b) || len(names.all) > maxNames {
			t.Fatalf("name %d is %q, of %d", n, s, len(names.all))
		}
	}
}
