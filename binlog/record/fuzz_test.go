package record

import (
	"bytes"
	"strings"
	"testing"

	"trellis/binlog/journal"
)

// sealAll makes the checksums of a fuzzer's bytes right, so that it comes behind
// them.
func sealAll(b []byte, salt Salt) {
	for len(b) >= SmallSize {
		n := int(le.Uint32(b[4:])&maxWords) * 8
		if n < SmallSize || n > len(b) {
			return
		}
		if KindOf(b) == Full && n >= fullFixed {
			le.PutUint16(b[headAt:], uint16(sum(uint32(salt), b[4:headAt])))
		}
		seal(b[:n], salt)
		b = b[n:]
	}
}

// heldRecords are records of sessions on record.
func heldRecords(salt Salt, r *journal.Record) (list [][]byte) {
	add := func(n int64, encode func(b []byte)) {
		b := make([]byte, n)
		encode(b)
		list = append(list, b)
	}
	x := *r
	x.Origin = journal.Origin{Session: 1 << 40, Offset: 77}
	add(x.Size(), func(b []byte) { EncodeFull(b, salt, &x) })
	if x.State != journal.Deleted {
		x.State = journal.Stays
		add(SizeOfUpdate(&x), func(b []byte) { EncodeUpdate(b, salt, &x) })
	}
	add(SizeOfDelete(&x.Origin), func(b []byte) { EncodeDelete(b, salt, x.ID, &x.Origin) })
	set := journal.DeadLetters("mail", 3, "mail.dead")
	set.Origin = x.Origin
	add(SettingSize(&set), func(b []byte) { EncodeSetting(b, salt, &set) })
	set.RetryMin, set.Paused = 5, true
	add(SettingSize(&set), func(b []byte) { EncodeSetting(b, salt, &set) })
	h := journal.Hold{ID: x.ID, Session: x.Origin.Session, End: 1e18, Offset: 7, Touch: true, Reserves: 3}
	add(HoldSize, func(b []byte) { EncodeHold(b, salt, &h) })
	add(SmallSize, func(b []byte) { EncodeSmall(b, salt, Close, h.Session) })
	add(NumbersSize, func(b []byte) { EncodeNumbers(b, salt, &journal.Numbers{First: 3, Count: 2, Member: 5, Nonce: 6}) })
	return list
}

// FuzzRecords feeds bytes to the reader of records, as they are and with
// checksums that are made right. Whatever it accepts must be what the writer
// writes for it, byte for byte.
func FuzzRecords(f *testing.F) {
	const salt = 12345
	tried := testRecord(6, 10)
	tried.Releases, tried.Kicks, tried.Attempts = 5, 1, 2
	both := testRecord(3, 10)
	both.Keys = journal.Keys{Unique: "k", Seconds: 9, Limited: "some-longer-key", Limit: 2}
	limited := testRecord(4, 0)
	limited.Keys = journal.Keys{Limited: strings.Repeat("c", journal.MaxKey), Limit: 1<<32 - 1}
	all := testRecord(7, 10)
	all.Kicks, all.Attempts, all.Keys = 1, 2, both.Keys
	terms := testRecord(8, 10)
	terms.Keys.Terms = &journal.Terms{Fair: "f", Group: "group", After: "other", Settled: true, Expires: 60}
	every := testRecord(9, 10)
	every.Kicks, every.Attempts, every.Keys = 1, 2, both.Keys
	every.Keys.Terms = &journal.Terms{Fair: strings.Repeat("f", journal.MaxKey), Expires: 1<<32 - 1}
	tombstone := &journal.Record{ID: 5, State: journal.Deleted, Due: 7, Tube: "t", Keys: journal.Keys{Unique: "k", Seconds: 9}}
	for _, r := range []*journal.Record{testRecord(1, 0), testRecord(2, 100), tried, both, limited, all, terms, every, tombstone} {
		b := make([]byte, r.Size())
		EncodeFull(b, salt, r)
		u := make([]byte, SizeOfUpdate(r))
		EncodeUpdate(u, salt, r)
		set := journal.DeadLetters("mail", 3, "mail.dead")
		g := make([]byte, SettingSize(&set))
		EncodeSetting(g, salt, &set)
		u = append(u, g...)
		d := make([]byte, SmallSize)
		EncodeSmall(d, salt, Delete, 5)
		for _, more := range heldRecords(salt, r) {
			d = append(d, more...)
		}
		s := make([]byte, StartSize)
		(&Run{At: 1, Boot: 2, NextID: 3}).Encode(s, salt)
		f.Add(append(append(append(b, u...), d...), s...), false)
		f.Add(append(make([]byte, 24), b...), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, forge bool) {
		if forge {
			b = bytes.Clone(b)
			sealAll(b, salt)
		}
		sc := Scanner{f: bytes.NewReader(b), index: 1 << 31, salt: salt, size: int64(len(b))}
		var names Names
		for {
			at := sc.off
			rec, err := sc.Next()
			if err != nil {
				if sc.off != at {
					t.Fatal("the reader has moved on from an error")
				}
				if !sc.resync() {
					break
				}
				continue
			}
			var r journal.Record
			again := make([]byte, len(rec))
			switch KindOf(rec) {
			case Full:
				DecodeFull(rec, &r, &names)
				EncodeFull(again, salt, &r)
			case Update:
				DecodeUpdate(rec, &r)
				EncodeUpdate(again, salt, &r)
				if r.State == journal.Ready || r.State == journal.Stays { // which uses no time
					copy(again[16:24], rec[16:24])
					seal(again, salt)
				}
			case Setting, Policy:
				s := DecodeSetting(rec)
				EncodeSetting(again, salt, &s)
			case Hold:
				h := DecodeHold(rec)
				EncodeHold(again, salt, &h)
			case Numbers:
				n := DecodeNumbers(rec)
				EncodeNumbers(again, salt, &n)
			case Delete:
				o := DeleteOrigin(rec)
				EncodeDelete(again, salt, Number(rec), &o)
			case Start:
				var run Run
				run.Decode(rec)
				run.Encode(again, salt)
			default:
				EncodeSmall(again, salt, KindOf(rec), Number(rec))
			}
			if KindOf(rec) == Full && r.State == journal.Ready {
				copy(again[24:32], rec[24:32])
				le.PutUint16(again[headAt:], uint16(sum(uint32(salt), again[4:headAt])))
				seal(again, salt)
			}
			if !bytes.Equal(again, rec) {
				t.Fatalf("accepted %x, which is written %x", rec, again)
			}
		}
		if cap(sc.buf) > max(len(b), scanWindow) {
			t.Fatalf("%d bytes of memory for %d of records", cap(sc.buf), len(b))
		}
	})
}
