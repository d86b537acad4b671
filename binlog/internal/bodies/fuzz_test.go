package bodies

import (
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/record"
)

// Whatever stands at a place, what is taken for the body is part of a sound record of that job.
func FuzzBytesAtAPlace(f *testing.F) {
	salt := record.NewSalt(seed, 1)
	for _, r := range []journal.Record{
		{ID: 1, State: journal.Ready, Tube: "a", Body: []byte("body")},
		{ID: 1, State: journal.Buried, Tube: "tube", Body: []byte("body"), Attempts: 7, Origin: journal.Origin{Session: 1, Offset: 2}},
		{ID: 1, State: journal.Held, Tube: "t", Body: []byte("body"), Keys: journal.Keys{Unique: "k", Terms: &journal.Terms{After: "g"}}},
		{ID: 2, State: journal.Ready, Tube: "a", Body: []byte("body")},
	} {
		b := make([]byte, r.Size())
		record.EncodeFull(b, salt, &r)
		f.Add(b, uint32(4))
		f.Add(b[:len(b)-1], uint32(4))
		f.Add(append(b, 1, 2, 3), uint32(3))
	}
	small := make([]byte, record.SmallSize)
	record.EncodeSmall(small, salt, record.Delete, 1)
	f.Add(small, uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, size uint32) {
		want := journal.Fetch{ID: 1, Size: size, Place: journal.Place{Segment: 1, Offset: 10}}
		body, ok := check(b, &want, salt)
		if !ok {
			return
		}
		var r journal.Record
		whole, err := record.First(b, 1, salt)
		if err != nil || len(whole) > len(b) || record.KindOf(whole) != record.Full {
			t.Fatal("no sound record")
		}
		record.DecodeFull(whole, &r, new(record.Names))
		if r.ID != 1 || len(r.Body) != int(size) || string(r.Body) != string(body) {
			t.Fatalf("%+v", r)
		}
	})
}
