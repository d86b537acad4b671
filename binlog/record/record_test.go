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
	x.Keys, y.Keys = journal.Keys{}, journal.Keys{}
	return fmt.Sprint(x) == fmt.Sprint(y) && a.Keys.Equal(&b.Keys) && bytes.Equal(a.Body, b.Body)
}

// Records come out as they went in.
func TestRecordsOfAnyContentAreKept(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := journal.Record{
			ID: rapid.Uint64Min(1).Draw(rt, "id"), State: rapid.SampledFrom([]journal.State{journal.Ready, journal.Buried, journal.Delayed}).Draw(rt, "state"), Origin: someOrigin(rt),
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
		tellsOf(rt, b, r.Origin, journal.Effect{ID: r.ID, Kind: journal.EffectPut, State: r.State})
		if r.State == journal.Deleted {
			return
		}
		if rapid.Bool().Draw(rt, "stays") {
			r.State, r.Due, r.BuryOrder = journal.Stays, 0, 0
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
		tellsOf(rt, u, r.Origin, journal.Effect{ID: r.ID, Kind: journal.EffectUpdate, State: r.State})
	})
}

func TestSettingsAreKept(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := journal.DeadLetters(rapid.StringMatching(`[a-z]{1,200}`).Draw(rt, "tube"), rapid.Uint32().Draw(rt, "most"), "")
		s.Origin = someOrigin(rt)
		if s.Attempts > 0 {
			s.Dead = rapid.StringMatching(`[a-z]{1,200}`).Draw(rt, "dead tube")
		}
		kind := Setting
		if rapid.Bool().Draw(rt, "more") {
			s.Policy = somePolicy(rt)
			kind = Policy
		}
		if !ValidSetting(&s) || s.Plain() != (kind == Setting) {
			rt.Fatalf("%+v is valid: %v", s, ValidSetting(&s))
		}
		b := bytes.Repeat([]byte{0xff}, int(SettingSize(&s)))
		EncodeSetting(b, 7, &s)
		n, p, what := plausible(b, int64(len(b)), 7)
		if what == "" {
			what = check(b, p) + impossible(b, 1)
		}
		if got := DecodeSetting(b); what != "" || n != int64(len(b)) || got != s || KindOf(b) != kind {
			rt.Fatalf("%s: got a %v record of %+v, want %+v", what, KindOf(b), got, s)
		}
		tellsOf(rt, b, s.Origin, journal.Effect{Kind: journal.EffectSetting})
	})
}

// somePolicy is one that a setting record cannot hold.
func somePolicy(rt *rapid.T) journal.Policy {
	n := func(what string, least, most uint32) uint32 { return rapid.Uint32Range(least, most).Draw(rt, what) }
	p := journal.Policy{
		Attempts: n("attempts", 0, 2), Dead: rapid.StringMatching(`[a-z]{0,200}`).Draw(rt, "dead"),
		Disconnects: rapid.Bool().Draw(rt, "disconnects"), Paused: rapid.Bool().Draw(rt, "paused"),
		RetryMin: n("min", 0, 1<<32-1), RetryFactor: n("factor", 1, 10), RetryMax: n("max", 1, 1<<32-1), RetryJitter: n("jitter", 0, 100),
		Rate: n("rate", 0, 1_000_000), Per: n("per", 1, 86_400), Burst: n("burst", 0, 10_000),
		MaxReserved: n("max-reserved", 1, 1<<32-1), Expire: n("expire", 0, 1<<32-1),
	}
	if p.Rate == 0 {
		p.Per = 1
	}
	return p
}

// someOrigin is none, or an origin.
func someOrigin(t *rapid.T) (o journal.Origin) {
	if rapid.Bool().Draw(t, "of a command") {
		o = journal.Origin{Session: rapid.Uint64Min(1).Draw(t, "session"), Offset: rapid.Uint64Range(1, journal.MaxOffset).Draw(t, "offset")}
	}
	return o
}

// sound tells what a reader finds wrong with a record that was written, "" if it is nothing.
func sound(b []byte) string {
	n, p, what := plausible(b, int64(len(b)), 7)
	if what == "" {
		what = check(b, p) + impossible(b, 1)
	}
	if what == "" && n != int64(len(b)) {
		what = fmt.Sprintf("%d bytes of %d", n, len(b))
	}
	return what
}

func TestHoldsClosesNumbersAndDeletesAreKept(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := journal.Hold{
			ID: rapid.Uint64Min(1).Draw(rt, "id"), Session: rapid.Uint64Min(1).Draw(rt, "session"), End: rapid.Int64().Draw(rt, "end"),
			Offset: rapid.Uint64Range(0, journal.MaxOffset).Draw(rt, "offset"), Reserves: rapid.Uint32().Draw(rt, "reserves"),
		}
		h.Touch = h.Offset != 0 && rapid.Bool().Draw(rt, "touch")
		b := bytes.Repeat([]byte{0xff}, HoldSize)
		EncodeHold(b, 7, &h)
		if got := DecodeHold(b); sound(b) != "" || got != h || LastID(b) != h.ID || Version(b) != 2 {
			rt.Fatalf("%s: got %+v, want %+v", sound(b), got, h)
		}
		by, kind := journal.Origin{}, journal.EffectHold
		if h.Offset != 0 {
			by = journal.Origin{Session: h.Session, Offset: h.Offset}
		}
		if h.Touch {
			kind = journal.EffectTouch
		}
		tellsOf(rt, b, by, journal.Effect{ID: h.ID, Kind: kind})
		n := journal.Numbers{First: rapid.Uint32Range(1, 1<<23).Draw(rt, "first"), Count: rapid.Uint32Range(0, 1<<23).Draw(rt, "count")}
		if n.Count > 0 && rapid.Bool().Draw(rt, "given") {
			n.Member, n.Nonce = rapid.Uint64Min(1).Draw(rt, "member"), rapid.Uint64Min(1).Draw(rt, "nonce")
		}
		b = bytes.Repeat([]byte{0xff}, NumbersSize)
		EncodeNumbers(b, 7, &n)
		if got := DecodeNumbers(b); sound(b) != "" || got != n || LastID(b) != 0 || Version(b) != 2 {
			rt.Fatalf("%s: got %+v, want %+v", sound(b), got, n)
		}
		b = bytes.Repeat([]byte{0xff}, SmallSize)
		EncodeSmall(b, 7, Close, h.Session)
		if sound(b) != "" || Number(b) != h.Session || LastID(b) != 0 || Version(b) != 2 {
			rt.Fatalf("close: %s", sound(b))
		}
		tellsOf(rt, b, journal.Origin{}, journal.Effect{})
		o := someOrigin(rt)
		b = bytes.Repeat([]byte{0xff}, int(SizeOfDelete(&o)))
		EncodeDelete(b, 7, h.ID, &o)
		if sound(b) != "" || Number(b) != h.ID || DeleteOrigin(b) != o || (Version(b) == 2) != (o != journal.Origin{}) {
			rt.Fatalf("delete: %s, of %+v", sound(b), o)
		}
		tellsOf(rt, b, o, journal.Effect{ID: h.ID, Kind: journal.EffectDelete})
	})
}

// tellsOf checks what a record says of the command that has made it, none if o is zero.
func tellsOf(t *rapid.T, b []byte, o journal.Origin, want journal.Effect) {
	if want.Session, want.Offset = o.Session, o.Offset; o == (journal.Origin{}) {
		want = journal.Effect{}
	}
	got, ok := EffectOf(b)
	if got != want || ok != (o != journal.Origin{}) || ok && !got.Valid() {
		t.Fatalf("a %v record tells of %+v, want %+v", KindOf(b), got, want)
	}
}

// What is new is in records of later versions only: those of before are written as ever.
func TestRecordsWithoutOriginsAreOfVersionOne(t *testing.T) {
	r := testRecord(1, 20)
	set := journal.DeadLetters("t", 1, "d")
	for second := range 2 {
		full, update, setting := make([]byte, r.Size()), make([]byte, SizeOfUpdate(r)), make([]byte, SettingSize(&set))
		EncodeFull(full, 7, r)
		EncodeUpdate(update, 7, r)
		EncodeSetting(setting, 7, &set)
		for _, b := range [][]byte{full, update, setting} {
			if got := Version(b); got != uint8(1+second) || sound(b) != "" {
				t.Errorf("a %v record is of version %d, want %d; %s", KindOf(b), got, 1+second, sound(b))
			}
		}
		r.Origin = journal.Origin{Session: 9, Offset: 7}
		set.Origin = r.Origin
	}
	r.Origin, r.State = journal.Origin{}, journal.Stays
	update := make([]byte, SizeOfUpdate(r))
	EncodeUpdate(update, 7, r)
	if Version(update) != 2 || sound(update) != "" {
		t.Errorf("an update of a job that stays is of version %d; %s", Version(update), sound(update))
	}
	if Valid(r) {
		t.Error("a full record says that its job stays where it is")
	}
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
