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
		if what != "" || n != int64(len(b)) || !sameRecord(&got, &r) {
			rt.Fatalf("%s: got %+v, want %+v", what, got, r)
		}
		if at := BodyOffset(b); !bytes.Equal(b[at:][:len(r.Body)], r.Body) {
			rt.Fatalf("the body does not start at %d", at)
		}
		if r.State == journal.Deleted {
			return
		}
		u := make([]byte, UpdateSize)
		EncodeUpdate(u, 7, &r)
		DecodeUpdate(u, &got)
		got.Tube, got.Body, got.TTR, got.Created, got.Keys = r.Tube, r.Body, r.TTR, r.Created, r.Keys
		if !sameRecord(&got, &r) {
			rt.Fatalf("update: got %+v, want %+v", got, r)
		}
	})
}
