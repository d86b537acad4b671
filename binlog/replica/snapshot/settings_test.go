package snapshot

import (
	"errors"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/vfs/faultfs"
)

// What programs of before know is written so that they can read it.
func TestASnapshotIsOfVersion2IfItHasSettingsOrAttempts(t *testing.T) {
	plain := &journal.Record{ID: 1, State: journal.Ready, Tube: "t", Releases: 2, Attempts: 2}
	tried := &journal.Record{ID: 2, State: journal.Ready, Tube: "t", Releases: 2, Kicks: 1, Attempts: 1}
	for name, x := range map[string]struct {
		tell func(w *Writer) error
		want uint32
	}{
		"jobs":     {func(w *Writer) error { return errors.Join(w.Full(plain), w.Update(plain), w.Delete(1)) }, formatVersion},
		"full":     {func(w *Writer) error { return w.Full(tried) }, extendedVersion},
		"update":   {func(w *Writer) error { return w.Update(tried) }, extendedVersion},
		"settings": {func(w *Writer) error { return w.Setting(&journal.Setting{Tube: "t", MaxAttempts: 1, DeadTube: "d"}) }, extendedVersion},
	} {
		t.Run(name, func(t *testing.T) {
			fs := faultfs.New(root)
			w, err := Create(fs, dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := x.tell(w); err != nil {
				t.Fatal(err)
			}
			of := metaOf(9)
			of.Highest = 2
			m, path, err := w.Finish(of)
			if err != nil {
				t.Fatal(err)
			}
			if got := le.Uint32(m.encode()[8:]); got != x.want {
				t.Errorf("version %d, want %d", got, x.want)
			}
			if err := Load(fs, path, queue{}); err != nil {
				t.Error(err)
			}
			// What a description of version 1 does not announce is not believed.
			r := reader{fs: fs, path: path, meta: &m}
			m.extended = false
			if err := r.next(); (err != nil) != (x.want == extendedVersion) {
				t.Errorf("read as version 1: %v", err)
			}
		})
	}
}
