package spill

import (
	"log/slog"
	"path/filepath"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/vfs"
)

// What it costs to have a body of 1 KiB leave memory, with its syncs: compare processor times.
func BenchmarkSpill(b *testing.B) {
	s, err := Open(Options{FS: vfs.OS{}, Dir: filepath.Join(b.TempDir(), "bodies"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	o := newOwner()
	o.keeps = true // so that files do not fill the disk
	if o.life, err = s.Begin(o, nil); err != nil {
		b.Fatal(err)
	}
	o.life.Listed()
	r := journal.Record{State: journal.Ready, TTR: 1, Tube: "a tube", Body: make([]byte, 1024)}
	b.SetBytes(1024)
	b.ReportAllocs()
	for b.Loop() {
		r.ID++
		err := o.life.Add(&r)
		if err == nil && o.life.Full() {
			if err = o.life.Write(); err == nil {
				s.Current(s.Walk())
				s.Current(s.Walk())
				err = s.Remove(nil)
			}
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
