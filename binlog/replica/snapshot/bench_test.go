package snapshot

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/vfs"
)

const million = 1_000_000

// writeJobs writes a snapshot of so many jobs with bodies of 100 bytes.
func writeJobs(b *testing.B, dir string, index uint64, jobs int) Meta {
	b.Helper()
	w, err := Create(vfs.OS{}, dir)
	if err != nil {
		b.Fatal(err)
	}
	r := recordOf(1, 4, 100)
	for id := range uint64(jobs) {
		r.ID = id + 1
		if err := w.Full(&r); err != nil {
			b.Fatal(err)
		}
	}
	m := metaOf(index)
	m.Highest = uint64(jobs)
	m, _, err = w.Finish(m)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

func current1M(b *testing.B) (Meta, string) {
	b.Helper()
	dir := b.TempDir()
	m := writeJobs(b, dir, 1, million)
	if err := SetCurrent(vfs.OS{}, dir, &m); err != nil {
		b.Fatal(err)
	}
	m, path, err := Current(vfs.OS{}, dir)
	if err != nil {
		b.Fatal(err)
	}
	return m, path
}

func BenchmarkWriteAMillionJobs(b *testing.B) {
	b.ReportAllocs()
	dir := b.TempDir()
	for i := uint64(1); b.Loop(); i++ {
		m := writeJobs(b, dir, i, million)
		b.SetBytes(m.Bytes)
		if err := errors.Join(SetCurrent(vfs.OS{}, dir, &m), Prune(vfs.OS{}, dir)); err != nil {
			b.Fatal(err)
		}
	}
}

// counter counts jobs: what loading costs without what it feeds.
type counter struct{ jobs int }

func (c *counter) Full(*journal.Record, journal.Place) (journal.Former, error) {
	c.jobs++
	return journal.Former{}, nil
}
func (c *counter) Update(*journal.Record) error   { return nil }
func (c *counter) Delete(uint64) uint32           { return 0 }
func (c *counter) Setting(*journal.Setting) error { return nil }
func (c *counter) Hold(*journal.Hold) error       { return nil }
func (c *counter) Close(uint64) error             { return nil }
func (c *counter) Numbers(*journal.Numbers) error { return nil }

func BenchmarkLoadAMillionJobs(b *testing.B) {
	m, path := current1M(b)
	b.SetBytes(m.Bytes)
	b.ReportAllocs()
	for b.Loop() {
		var c counter
		if err := Load(vfs.OS{}, path, &c, nil); err != nil || c.jobs != million {
			b.Fatal(c, err)
		}
	}
}

func BenchmarkSendAMillionJobs(b *testing.B) {
	m, path := current1M(b)
	b.SetBytes(m.Bytes)
	b.ReportAllocs()
	for b.Loop() {
		if err := Send(vfs.OS{}, path, io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReceiveAMillionJobs(b *testing.B) {
	m, path := current1M(b)
	var stream bytes.Buffer
	if err := Send(vfs.OS{}, path, &stream); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(m.Bytes)
	b.ReportAllocs()
	for b.Loop() {
		dir := b.TempDir()
		if _, _, err := Receive(vfs.OS{}, dir, 1, 3, bytes.NewReader(stream.Bytes())); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := vfs.RemoveAll(vfs.OS{}, dir+"/1-3"); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
