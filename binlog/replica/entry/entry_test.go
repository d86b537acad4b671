package entry

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/record"
)

func sample(id uint64, body int) *journal.Record {
	return &journal.Record{
		ID: id, State: journal.Delayed, Pri: 7, Delay: 3, TTR: 60, Created: 1e18, Due: 2e18,
		Reserves: 1, Tube: "orders", Body: bytes.Repeat([]byte{'x'}, body),
	}
}

func appendFull(b []byte, r *journal.Record) []byte {
	n := len(b)
	b = append(b, make([]byte, r.Size())...)
	record.EncodeFull(b[n:], Salt, r)
	return b
}

func appendUpdate(b []byte, r *journal.Record) []byte {
	n := len(b)
	b = append(b, make([]byte, record.SizeOfUpdate(r))...)
	record.EncodeUpdate(b[n:], Salt, r)
	return b
}

func appendSetting(b []byte) []byte {
	s := journal.DeadLetters("orders", 3, "orders.dead")
	n := len(b)
	b = append(b, make([]byte, record.SettingSize(&s))...)
	record.EncodeSetting(b[n:], Salt, &s)
	return b
}

// tried is a job that was kicked and has failed since.
func tried(id uint64) *journal.Record {
	r := sample(id, 10)
	r.Kicks, r.Releases, r.Attempts = 1, 2, 1
	return r
}

// triedEntry has records with attempts, and a setting.
func triedEntry() []byte {
	b := make([]byte, HeaderSize)
	b = appendFull(b, tried(12))
	b = appendUpdate(b, tried(4))
	b = appendSetting(b)
	h := header
	h.Seal(b)
	return b
}

func appendSmall(b []byte, k record.Kind, number uint64) []byte {
	n := len(b)
	b = append(b, make([]byte, record.SmallSize)...)
	record.EncodeSmall(b[n:], Salt, k, number)
	return b
}

var header = Header{Kind: Records, Term: 3, Sequence: 9, Stamp: 1_700_000_000_123_456_789, LastID: 12, Decided: 11}

// anEntry has one record of each kind.
func anEntry() []byte {
	b := make([]byte, HeaderSize)
	b = appendFull(b, sample(12, 100))
	b = appendUpdate(b, sample(4, 0))
	b = appendSmall(b, record.Delete, 11)
	h := header
	h.Seal(b)
	return b
}

func reseal(b []byte) []byte {
	le.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return b
}

func TestAnEntryIsReadAsItWasSealed(t *testing.T) {
	var r Reader
	for range 2 {
		h, err := r.Reset(anEntry())
		if err != nil || h != header {
			t.Fatalf("%+v, %v", h, err)
		}
		var kinds []string
		for {
			b, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, record.KindOf(b).String())
			if record.KindOf(b) == record.Full {
				var got journal.Record
				record.DecodeFull(b, &got, &record.Names{})
				if want := sample(12, 100); got.Tube != want.Tube || !bytes.Equal(got.Body, want.Body) || got.Due != want.Due {
					t.Errorf("got %+v", got)
				}
			}
		}
		if s := strings.Join(kinds, " "); s != "full update delete" {
			t.Errorf("records: %s", s)
		}
	}
}

func TestSettingsAndAttemptsAreReadInEntries(t *testing.T) {
	var r Reader
	if _, err := r.Reset(triedEntry()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Fatal(err)
	}
}

// secondEntry has one record of each kind that version 2 has brought.
func secondEntry() []byte {
	b := make([]byte, HeaderSize)
	r := sample(12, 10)
	r.Origin = journal.Origin{Session: 1<<40 | 7, Offset: 90}
	b = appendFull(b, r)
	x := *r
	x.State = journal.Stays
	b = appendUpdate(b, &x)
	h := journal.Hold{ID: 4, Session: r.Origin.Session, End: 2e18, Offset: 95, Reserves: 1}
	b = append(b, make([]byte, record.HoldSize)...)
	record.EncodeHold(b[len(b)-record.HoldSize:], Salt, &h)
	b = appendSmall(b, record.Close, 1<<60) // which is no id of a job
	b = append(b, make([]byte, record.NumbersSize)...)
	record.EncodeNumbers(b[len(b)-record.NumbersSize:], Salt, &journal.Numbers{First: 1 << 20, Count: 4, Member: 5, Nonce: 6})
	n := record.SizeOfDelete(&r.Origin)
	b = append(b, make([]byte, n)...)
	record.EncodeDelete(b[int64(len(b))-n:], Salt, 11, &r.Origin)
	s := journal.DeadLetters("orders", 3, "orders.dead")
	s.Origin = r.Origin
	n = record.SettingSize(&s)
	b = append(b, make([]byte, n)...)
	record.EncodeSetting(b[int64(len(b))-n:], Salt, &s)
	second := header
	second.Format = 2
	second.Seal(b)
	return b
}

func TestHoldsAreReadInEntriesOfVersionTwoOnly(t *testing.T) {
	var r Reader
	b := secondEntry()
	h, err := r.Reset(b)
	if err != nil || h.Format != 2 {
		t.Fatalf("%+v, %v", h, err)
	}
	var kinds []string
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, record.KindOf(rec).String())
		// Alone in an entry of version 1 it is refused.
		alone := append(make([]byte, HeaderSize), rec...)
		first := header
		first.Seal(alone)
		var other Reader
		if _, err := other.Reset(alone); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Next(); !errors.Is(err, ErrMalformed) {
			t.Errorf("a %s record in an entry of version 1: %v", kinds[len(kinds)-1], err)
		}
	}
	if got := strings.Join(kinds, " "); got != "full update hold close numbers delete setting" {
		t.Errorf("records: %s", got)
	}
}

// thirdRecords are one record of each kind that version 3 has brought.
func thirdRecords() [][]byte {
	s := journal.DeadLetters("orders", 3, "")
	policy := make([]byte, record.SettingSize(&s))
	record.EncodeSetting(policy, Salt, &s)
	job := sample(12, 10)
	job.Keys.Terms = &journal.Terms{Group: "g"}
	return [][]byte{policy, appendFull(nil, job)}
}

// thirdEntry has all of them, in a version.
func thirdEntry(version uint8) []byte { return entryOf(version, thirdRecords()...) }

// entryOf is an entry of a version with these records.
func entryOf(version uint8, records ...[]byte) []byte {
	b := append(make([]byte, HeaderSize), slices.Concat(records...)...)
	h := header
	h.Format = version
	h.Seal(b)
	return b
}

func TestPoliciesAndTermsAreReadInEntriesOfVersionThreeOnly(t *testing.T) {
	testRecordsSince(t, 3, thirdRecords())
}

// testRecordsSince tests that records are read in entries of a version and of later ones, and are malformed in others.
func testRecordsSince(t *testing.T, since uint8, records [][]byte) {
	t.Helper()
	var r Reader
	for version := uint8(1); version <= Newest; version++ {
		for _, rec := range records {
			b := append(make([]byte, HeaderSize), rec...)
			h := header
			if version > first {
				h.Format = version
			}
			h.Seal(b)
			if _, err := r.Reset(b); err != nil {
				t.Fatal(err)
			}
			got, err := r.Next()
			if version < since && !errors.Is(err, ErrMalformed) || version >= since && (err != nil || !bytes.Equal(got, rec)) {
				t.Errorf("a %v record in an entry of version %d: %v", record.KindOf(rec), version, err)
			}
		}
	}
}

// fifthRecords are one record of each kind that version 5 has brought.
func fifthRecords() [][]byte {
	s := journal.DeadLetters("orders", 0, "")
	s.Linger = 60
	policy, hold := make([]byte, record.SettingSize(&s)), make([]byte, record.HoldSize)
	record.EncodeSetting(policy, Salt, &s)
	record.EncodeHold(hold, Salt, &journal.Hold{ID: 12, End: 1e18, Reserves: 3})
	return [][]byte{policy, hold}
}

// fifthEntry has all of them.
func fifthEntry() []byte { return entryOf(5, fifthRecords()...) }

func TestLingerIsReadInEntriesOfVersionFiveOnly(t *testing.T) { testRecordsSince(t, 5, fifthRecords()) }

// The bytes of a version do not change: members of other programs read them.
func TestEntriesOfAllVersionsAreAsWritten(t *testing.T) {
	for version, b := range map[int][]byte{1: append(anEntry(), triedEntry()...), 2: secondEntry(), 3: thirdEntry(3), 4: thirdEntry(4), 5: fifthEntry()} {
		file := fmt.Sprintf("testdata/version%d.hex", version)
		got := hex.Dump(b)
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("version %d:\ngot\n%s\nwant\n%s", version, got, want)
		}
	}
}

// So are those of a header.
func TestTheFormatIsAsWritten(t *testing.T) {
	b := make([]byte, HeaderSize)
	h := Header{Kind: Begin, Term: 0x0102, Sequence: 3, Stamp: 4, LastID: 5, Decided: 6}
	h.Seal(b)
	const want = "01020000" + "0201000000000000" + "0300000000000000" + "0400000000000000" + "0500000000000000" + "0600000000000000"
	if got := hex.EncodeToString(b[4:]); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestEveryBitOfAnEntryIsChecked(t *testing.T) {
	good := anEntry()
	var r Reader
	for at := range good {
		b := bytes.Clone(good)
		b[at] ^= 1 << (at % 8)
		if _, err := r.Reset(b); !errors.Is(err, ErrMalformed) {
			t.Fatalf("byte %d: %v", at, err)
		}
		if _, err := r.Next(); err != io.EOF {
			t.Fatalf("a record of an entry that was refused: %v", err)
		}
	}
	for n := range good {
		if _, err := r.Reset(good[:n]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

func TestEntriesThatCannotBeAreRefused(t *testing.T) {
	var r Reader
	for what, c := range map[string]struct {
		change func(b []byte) []byte
		want   error
	}{
		"a later version":        {func(b []byte) []byte { b[4] = Newest + 1; return b }, ErrUnknown},
		"no version":             {func(b []byte) []byte { b[4] = 0; return b }, ErrUnknown},
		"an unknown kind":        {func(b []byte) []byte { b[5] = 4; return b }, ErrUnknown},
		"no kind":                {func(b []byte) []byte { b[5] = 0; return b }, ErrUnknown},
		"reserved bytes":         {func(b []byte) []byte { b[6] = 1; return b }, ErrMalformed},
		"no term":                {func(b []byte) []byte { clear(b[8:16]); return b }, ErrMalformed},
		"no sequence":            {func(b []byte) []byte { clear(b[16:24]); return b }, ErrMalformed},
		"decided ids to come":    {func(b []byte) []byte { b[40] = 14; return b }, ErrMalformed},
		"decided, no id at all":  {func(b []byte) []byte { b[32] = 0; b[40] = 2; return b }, ErrMalformed},
		"a begin with records":   {func(b []byte) []byte { b[5] = 2; return b }, ErrMalformed},
		"an odd length":          {func(b []byte) []byte { return append(b, 0) }, ErrMalformed},
		"more than the greatest": {func(b []byte) []byte { return append(b, make([]byte, MaxSize)...) }, ErrMalformed},
	} {
		if _, err := r.Reset(reseal(c.change(anEntry()))); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestRecordsThatCannotBeAreRefused(t *testing.T) {
	var r Reader
	for what, records := range map[string]func(b []byte) []byte{
		"a mark":               func(b []byte) []byte { return appendSmall(b, record.Mark, 1) },
		"an end":               func(b []byte) []byte { return appendSmall(b, record.End, 1) },
		"a later id":           func(b []byte) []byte { return appendSmall(b, record.Delete, 13) },
		"no id":                func(b []byte) []byte { return appendSmall(b, record.Delete, 0) },
		"zeros":                func(b []byte) []byte { return append(b, make([]byte, 64)...) },
		"half a record":        func(b []byte) []byte { return appendFull(b, sample(3, 100))[:HeaderSize+80] },
		"eight bytes":          func(b []byte) []byte { return append(b, make([]byte, 8)...) },
		"a record of a binlog": func(b []byte) []byte { b = appendUpdate(b, sample(3, 0)); b[HeaderSize] ^= 1; return b },
	} {
		b := records(make([]byte, HeaderSize))
		h := header
		h.Seal(b)
		if _, err := r.Reset(b); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if _, err := r.Next(); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestSealPanicsForWhatCannotBeRead(t *testing.T) {
	for what, h := range map[string]Header{
		"no kind": {Term: 1, Sequence: 1},
		"no term": {Kind: Begin, Sequence: 1},
		"decided": {Kind: Records, Term: 1, Sequence: 1, LastID: 3, Decided: 5},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: sealed", what)
				}
			}()
			h.Seal(make([]byte, HeaderSize))
		}()
	}
}

// FuzzEntry feeds bytes to the reader, as they are and with checksums that are made
// right. What it accepts is what the writer writes.
func FuzzEntry(f *testing.F) {
	f.Add(anEntry(), false)
	f.Add(anEntry(), true)
	f.Add(triedEntry(), false)
	f.Add(triedEntry(), true)
	f.Add(secondEntry(), false)
	f.Add(secondEntry(), true)
	f.Add(thirdEntry(4), false)
	f.Add(thirdEntry(4), true)
	f.Add(make([]byte, HeaderSize), true)
	f.Fuzz(func(t *testing.T, b []byte, forge bool) {
		if forge && len(b) >= HeaderSize {
			b = reseal(bytes.Clone(b))
		}
		var r Reader
		h, err := r.Reset(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnknown) {
				t.Fatal(err)
			}
			return
		}
		again := bytes.Clone(b)
		h.Seal(again)
		if !bytes.Equal(again, b) {
			t.Fatalf("accepted %x, which is written %x", b[:HeaderSize], again[:HeaderSize])
		}
		n := HeaderSize
		for {
			rec, err := r.Next()
			if err == io.EOF {
				if n != len(b) {
					t.Fatalf("%d bytes of %d were read", n, len(b))
				}
				return
			}
			if err != nil {
				if !errors.Is(err, ErrMalformed) {
					t.Fatal(err)
				}
				return
			}
			if !bytes.Equal(rec, b[n:n+len(rec)]) {
				t.Fatalf("the record at %d is not what is there", n)
			}
			n += len(rec)
		}
	})
}

// A batch of 16 KiB, as a loaded server makes them.
func BenchmarkRead(b *testing.B) {
	data := make([]byte, HeaderSize)
	for i := range uint64(80) {
		data = appendFull(data, sample(i+1, 120))
	}
	h := Header{Kind: Records, Term: 1, Sequence: 1, LastID: 80, Decided: 1}
	h.Seal(data)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	var r Reader
	for b.Loop() {
		if _, err := r.Reset(data); err != nil {
			b.Fatal(err)
		}
		for {
			if _, err := r.Next(); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkSeal(b *testing.B) {
	data := make([]byte, 16<<10)
	h := Header{Kind: Records, Term: 1, Sequence: 1}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		h.Seal(data)
	}
}

func TestARaiseTellsItsVersionAndNothingElseDoes(t *testing.T) {
	h := Header{Kind: Raise, Term: 3, Sequence: 9, Stamp: 5, LastID: 12, Decided: 11, Version: 2}
	b := make([]byte, HeaderSize)
	h.Seal(b)
	var got Header
	if err := got.Decode(b); err != nil || got != h {
		t.Errorf("%+v, %v", got, err)
	}
	for name, spoil := range map[string]func(b []byte) []byte{
		"to the first version": func(b []byte) []byte { le.PutUint16(b[6:], 1); return b },
		"to none":              func(b []byte) []byte { le.PutUint16(b[6:], 0); return b },
		"with records":         func(b []byte) []byte { return appendSmall(b, record.Delete, 11) },
		"of another kind":      func(b []byte) []byte { b[5] = byte(Begin); return b },
	} {
		if err := got.Decode(reseal(spoil(bytes.Clone(b)))); !errors.Is(err, ErrMalformed) {
			t.Errorf("a raise %s: %v", name, err)
		}
	}
}
