package spill

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/record"
)

// A Reader reads each body of a list, small or large, from more files than are open at a time, with a life and without.
func TestAReaderReadsBodiesOfMoreFilesThanAreOpen(t *testing.T) {
	g := newRig(t)
	for g.store.Stats().Files < windows+4 {
		if err := g.put(5); err != nil {
			t.Fatal(err)
		}
	}
	body := bytes.Repeat([]byte{7}, 3*window)
	g.ids++
	g.jobs[g.ids] = &job{body: body}
	r := journal.Record{ID: g.ids, State: journal.Ready, TTR: 1, Tube: "a tube", Body: body}
	if err := errors.Join(g.life.Add(&r), g.life.Write(), g.snapshot(func() error { return nil })); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Reader{NewReader(g.disk, "d/bodies", g.list), g.life.Reader(g.list)} {
		ids := slices.Sorted(maps.Keys(g.placed))
		for i := range ids {
			id := ids[i*7%len(ids)] // to and fro
			j := g.placed[id]
			fetch := journal.Fetch{ID: id, Place: j.at, Size: uint32(len(j.body))}
			if b, err := r.Body(&fetch); err != nil || !bytes.Equal(b, j.body) {
				t.Fatalf("job %d: %d bytes, %v", id, len(b), err)
			}
			for _, wrong := range []journal.Fetch{
				{ID: id + 1, Place: j.at, Size: fetch.Size},
				{ID: id, Place: j.at, Size: fetch.Size + 1},
				{ID: id, Place: journal.Place{Segment: j.at.Segment, Offset: j.at.Offset + 1}, Size: fetch.Size},
				{ID: id, Place: journal.Place{Segment: 1 << 20, Offset: j.at.Offset}, Size: fetch.Size},
				{ID: id, Place: journal.Place{Segment: j.at.Segment, Offset: 1 << 28}, Size: fetch.Size},
			} {
				if b, err := r.Body(&wrong); b != nil || !errors.As(err, new(*record.DamageError)) {
					t.Fatalf("what is not there: %d bytes, %v", len(b), err)
				}
			}
		}
		if len(r.files) > windows {
			t.Errorf("%d files are open", len(r.files))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
