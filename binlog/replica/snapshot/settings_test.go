package snapshot

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"testing"

	"trellis/binlog"
	"trellis/binlog/convert"
	"trellis/binlog/inspect"
	"trellis/binlog/journal"
	"trellis/binlog/vfs/faultfs"
)

// kept takes what a snapshot tells.
type kept struct {
	records  []journal.Record
	settings []journal.Setting
	holds    []journal.Hold
	closed   []uint64
	numbers  []journal.Numbers
}

func (k *kept) Full(r *journal.Record, _ journal.Place) (journal.Former, error) {
	k.records = append(k.records, *r)
	return journal.Former{}, nil
}

func (k *kept) Update(r *journal.Record) error {
	k.records = append(k.records, *r)
	return nil
}

func (k *kept) Delete(uint64) uint32 { return 1 }

func (k *kept) Setting(s *journal.Setting) error {
	k.settings = append(k.settings, *s)
	return nil
}

func (k *kept) Hold(h *journal.Hold) error { k.holds = append(k.holds, *h); return nil }

func (k *kept) Close(session uint64) error { k.closed = append(k.closed, session); return nil }

func (k *kept) Numbers(n *journal.Numbers) error { k.numbers = append(k.numbers, *n); return nil }

func TestASnapshotKeepsHoldsClosesAndNumbers(t *testing.T) {
	fs := faultfs.New(root)
	w, err := Create(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	job := journal.Record{ID: 2, State: journal.Ready, Tube: "t", Origin: journal.Origin{Session: 5, Offset: 6}}
	hold := journal.Hold{ID: 2, Session: 1 << 62, End: 9, Offset: 7, Touch: true, Reserves: 3}
	numbers := journal.Numbers{First: 1 << 22, Count: 3, Member: 8, Nonce: 9}
	c := w.Copier()
	_, err = c.Full(&job, journal.Place{Segment: 1})
	for _, err := range []error{err, c.Hold(&hold), c.Close(1 << 61), c.Numbers(&numbers)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	of := metaOf(9)
	of.Highest = 2 // sessions are no ids
	meta, path, err := w.Finish(of)
	if err != nil {
		t.Fatal(err)
	}
	var k kept
	if err := Load(fs, path, &k, nil); err != nil {
		t.Fatal(err)
	}
	hold.Offset, hold.Touch = 0, false // it tells of no commands
	if len(k.holds) != 1 || k.holds[0] != hold || len(k.closed) != 1 || k.closed[0] != 1<<61 || len(k.numbers) != 1 || k.numbers[0] != numbers {
		t.Errorf("%+v", k)
	}
	if len(k.records) != 1 || k.records[0].Origin != (journal.Origin{}) {
		t.Errorf("a job tells of a command: %+v", k.records)
	}
	if meta.Version != 2 {
		t.Errorf("a program that knows no holds may read it: version %d", meta.Version)
	}
}

func TestASnapshotSaysWhichProgramsReadIt(t *testing.T) {
	for name, tt := range map[string]struct {
		write func(w *Writer) error
		want  uint32
	}{
		"a job": {func(w *Writer) error { return w.Full(&journal.Record{ID: 2, State: journal.Ready, Tube: "t"}) }, 1},
		"a job of a group": {func(w *Writer) error {
			return w.Full(&journal.Record{ID: 2, State: journal.Ready, Tube: "t", Keys: journal.Keys{Terms: &journal.Terms{Group: "g"}}})
		}, 3},
		"dead letters": {func(w *Writer) error { s := journal.DeadLetters("t", 3, "d"); return w.Setting(&s) }, 1},
		"a rate": {func(w *Writer) error {
			s := journal.Setting{Tube: "t", Policy: journal.DefaultPolicy}
			s.Rate, s.Per = 5, 1
			return w.Setting(&s)
		}, 3},
	} {
		w, err := Create(faultfs.New(root), dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := tt.write(w); err != nil {
			t.Fatal(name, err)
		}
		of := metaOf(9)
		of.Highest = 2
		if meta, _, err := w.Finish(of); err != nil || meta.Version != tt.want {
			t.Errorf("%s: version %d, %v; want %d", name, meta.Version, err, tt.want)
		}
	}
}

// held is a Restorer of package binlog: the states of jobs.
type held struct {
	queue
	states map[uint64]string
}

func (h held) Full(r *journal.Record, place journal.Place) (journal.Former, error) {
	h.states[r.ID] = fmt.Sprint(r.State, r.Pri, r.Reserves)
	return h.queue.Full(r, place)
}

func (h held) Update(r *journal.Record) error {
	h.states[r.ID] = fmt.Sprint(r.State, r.Pri, r.Reserves)
	return nil
}

func (h held) Hold(x *journal.Hold) error {
	h.states[x.ID] = fmt.Sprint("held", x.Reserves)
	return nil
}

// A server alone, and tools, take a hold for a job that is ready, and pass over ends of sessions
// and numbers.
func TestACopyOfASnapshotWithHoldsIsALog(t *testing.T) {
	fs := faultfs.New(root)
	w, err := Create(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	buried := func(id uint64) *journal.Record {
		return &journal.Record{ID: id, State: journal.Buried, BuryOrder: id, Tube: "t", TTR: 1}
	}
	for _, err := range []error{
		w.Full(buried(2)), w.Full(buried(3)), w.Full(buried(4)),
		w.Hold(&journal.Hold{ID: 2, Session: 1 << 62, Reserves: 3}),
		w.Hold(&journal.Hold{ID: 3, Session: 1 << 62, Reserves: 1}), w.Update(buried(3)),
		w.Update(&journal.Record{ID: 4, State: journal.Stays, Pri: 5}),
		w.Hold(&journal.Hold{ID: 5, Session: 1 << 62}), // of a job that is gone
		w.Close(1 << 61), w.Numbers(&journal.Numbers{First: 1 << 20}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	of := metaOf(9)
	of.Highest = 7
	_, path, err := w.Finish(of)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(copyDir(fs, path, "d/copy"), fs.Mkdir("d/out"), inspect.Verify(io.Discard, fs, "d/copy")); err != nil {
		t.Fatal(err)
	}
	_, err = convert.Export(fs, "d/copy", "d/out")
	if err != nil {
		t.Fatal(err)
	}
	x, err := (&convert.Takeover{FS: fs, Dir: "d/out", SegmentSize: 1 << 20}).Import()
	if err != nil {
		t.Fatal(err)
	}
	if x.Ready != 1 || x.Buried != 2 || x.LastID != 7 {
		t.Errorf("exported %+v, want one job ready and two buried", x)
	}
	l, err := binlog.Open("d/copy", binlog.Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	h := held{queue{}, map[uint64]string{}}
	if err := errors.Join(l.Replay(h), l.Start(binlog.Hooks{}), l.Close()); err != nil {
		t.Fatal(err)
	}
	want := map[uint64]string{2: "held3", 3: "buried 0 0", 4: "stays 5 0", 5: "held0"}
	if !maps.Equal(h.states, want) || l.Recovery().NextID != 8 {
		t.Errorf("replayed %v up to id %d, want %v", h.states, l.Recovery().NextID, want)
	}
}

func TestASnapshotKeepsSettingsAttemptsAndKeys(t *testing.T) {
	fs := faultfs.New(root)
	w, err := Create(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	job := journal.Record{
		ID: 2, State: journal.Ready, Tube: "t", Releases: 2, Kicks: 1, Attempts: 1,
		Keys: journal.Keys{Unique: "u", Seconds: 9, Limited: "c", Limit: 2, Terms: &journal.Terms{Group: "g", Expires: 9}},
	}
	setting := journal.DeadLetters("t", 1, "d")
	for _, err := range []error{w.Full(&job), w.Update(&job), w.Setting(&setting)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	of := metaOf(9)
	of.Highest = 2
	_, path, err := w.Finish(of)
	if err != nil {
		t.Fatal(err)
	}
	var k kept
	if err := Load(fs, path, &k, nil); err != nil {
		t.Fatal(err)
	}
	if len(k.settings) != 1 || k.settings[0] != setting {
		t.Errorf("settings %+v", k.settings)
	}
	if len(k.records) != 2 || k.records[0].Attempts != 1 || !k.records[0].Keys.Equal(&job.Keys) || k.records[1].Attempts != 1 {
		t.Errorf("records %+v", k.records)
	}
}
