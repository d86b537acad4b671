package snapshot

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/sealed"
	"trellis/binlog/spill"
	"trellis/binlog/vfs/faultfs"
)

// The bytes of version 2 do not change.
func TestTheFormatWithBodyFilesIsAsWritten(t *testing.T) {
	m := aMeta()
	plain := m.encode()
	m.Files = []spill.File{
		{Number: 3, Seed: 0xb1, Size: 0xb200, Sum: 0xb3, Records: 0xb4, Bodies: 0xb5},
		{Number: 7, Seed: 0xc1, Size: 0xc200, Sum: 0xc3, Records: 0xc4, Bodies: 0xc5},
	}
	m.jobs = sealed.Segment{Size: 0xd0, Sum: 0xd1}
	m.Bytes += m.jobs.Size
	b := m.encode()
	more := "d000000000000000" + "d1000000" +
		"03000000" + "b1000000" + "b3000000" + "b4000000" + "00b2000000000000" + "b500000000000000" +
		"07000000" + "c1000000" + "c3000000" + "c4000000" + "00c2000000000000" + "c500000000000000"
	if got := hex.EncodeToString(b[len(plain)-4 : len(b)-4]); got != more {
		t.Errorf("behind the segments:\ngot  %s\nwant %s", got, more)
	}
	copy(plain[8:], b[8:16])   // version and length
	copy(plain[76:], b[76:80]) // body files
	copy(plain[96:], b[96:104])
	if le.Uint32(b[8:]) != 2 || le.Uint32(b[76:]) != 2 || !bytes.Equal(b[:len(plain)-4], plain[:len(plain)-4]) {
		t.Errorf("it begins with\n%x, not\n%x", b[:len(plain)-4], plain[:len(plain)-4])
	}
	var got Meta
	if err := got.decode(b); err != nil || !sameMeta(&got, &m) || got.jobs != m.jobs || !slices.Equal(got.Files, m.Files) {
		t.Errorf("%+v, %v", got, err)
	}
	for at := range 8 * len(b) {
		b[at/8] ^= 1 << (at % 8)
		if new(Meta).decode(b) == nil {
			t.Fatalf("bit %d", at)
		}
		b[at/8] ^= 1 << (at % 8)
	}
	for what, at := range map[string]int{
		"no jobs": len(plain) - 4, "a file without header": len(plain) + 8 + 16, "files out of order": len(plain) + 8 + 32,
		"version 1": 8,
	} {
		bad := bytes.Clone(b)
		clear(bad[at : at+3])
		if at == 8 {
			bad[at] = 1
		}
		if err := new(Meta).decode(forgeMeta(bad)); err == nil {
			t.Errorf("%s: it is taken", what)
		}
	}
	if _, err := receiveMeta(&summedReader{r: bytes.NewReader(b)}); !errors.Is(err, ErrMalformed) {
		t.Errorf("in a stream: %v", err)
	}
}

// aColdSnapshot is one of which half of the bodies are in body files.
func aColdSnapshot(t *testing.T) (*faultfs.FS, *node, Meta, string) {
	t.Helper()
	fs, n := faultfs.New(root), newNode(8).fill(150)
	err := n.spill(fs)
	var m Meta
	var path string
	if err == nil {
		m, path, err = n.take(fs, 9)
	}
	if err != nil || len(m.Files) == 0 {
		t.Fatalf("%+v, %v", m, err)
	}
	return fs, n, m, path
}

// Without a place in a body file a snapshot is what it always was.
func TestASnapshotHasJobsOnlyIfBodiesAreInBodyFiles(t *testing.T) {
	fs, n, m, path := aColdSnapshot(t)
	files := func(path string) (s string) {
		es, err := fs.List(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			if record.FileIndex(e.Name) == 0 {
				s += e.Name + " "
			}
		}
		return s
	}
	if got := files(path); got != "jobs meta " {
		t.Errorf("there is %s", got)
	}
	n.places = nil
	m, path, err := n.take(fs, 10)
	if err != nil || m.Files != nil || files(path) != "meta " || m.encode()[8] != 1 {
		t.Errorf("%+v, %v, %s", m, err, files(path))
	}
}

// A body is told with its place, or read from there.
func TestAStandbyIsToldThePlaceOfABody(t *testing.T) {
	fs, n, m, path := aColdSnapshot(t)
	s := places{queue: queue{}, node: n}
	told := int64(0)
	if err := Load(fs, path, &s, func(n int64) error { told += n; return nil }); err != nil {
		t.Fatal(err)
	}
	if s.cold == 0 || s.wrong > 0 || told > m.Bytes || told < m.Bytes-m.jobs.Size {
		t.Errorf("%d places, %d wrong, %d bytes of %d", s.cold, s.wrong, told, m.Bytes)
	}
	q := queue{}
	if err := errors.Join(load(fs, path, &m, q), q.diff(n.jobs)); err != nil {
		t.Error(err)
	}
}

// places is a queue that looks at the places that it is told.
type places struct {
	queue
	node        *node
	cold, wrong int
}

func (p *places) Full(r *journal.Record, at journal.Place) (journal.Former, error) {
	if x := r.Absent; x != nil {
		p.cold++
		if want := p.node.places[r.ID]; x.Place != at || want.at != at || int(x.Size) != len(want.body) || x.ID != r.ID {
			p.wrong++
		}
	}
	return p.queue.Full(r, at)
}

// Whatever is wrong with the file of jobs or with a body file is damage, in that file.
func TestDamageOfJobsAndBodiesIsFound(t *testing.T) {
	fs, _, m, path := aColdSnapshot(t)
	spoil := func(name string, change func(b []byte) []byte) error {
		b, err := readFile(fs, name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		write := func(b []byte) {
			f, err := fs.Open(name)
			if err == nil {
				_, err = f.WriteAt(b, 0)
			}
			if err == nil {
				err = errors.Join(f.Truncate(int64(len(b))), f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		write(change(bytes.Clone(b)))
		err = load(fs, path, &m, queue{})
		write(b)
		return err
	}
	jobs, body := path+"/"+JobsName, bodiesDir+"/"+record.FileName(m.Files[0].Number)
	damaged := func(err error, file string) bool {
		d := (*DamageError)(nil)
		return errors.As(err, &d) && d.File == file
	}
	for at := 0; at < int(m.jobs.Size); at += 3 {
		if err := spoil(jobs, func(b []byte) []byte { b[at] ^= 4; return b }); !damaged(err, jobs) {
			t.Fatalf("byte %d: %v", at, err)
		}
		if err := spoil(jobs, func(b []byte) []byte { return b[:at] }); !damaged(err, jobs) {
			t.Fatalf("cut at %d: %v", at, err)
		}
	}
	bad := func(b []byte) []byte { b[record.HeaderSize+80] ^= 1; return b }
	if err := spoil(body, bad); !damaged(err, body) {
		t.Errorf("a body: %v", err)
	}
	if err := spoil(body, func(b []byte) []byte { return b[:len(b)/2] }); !damaged(err, body) {
		t.Errorf("half of the bodies: %v", err)
	}
	if err := errors.Join(fs.Remove(jobs)); err != nil {
		t.Fatal(err)
	}
	if err := load(fs, path, &m, queue{}); !damaged(err, jobs) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("without jobs: %v", err)
	}
}

// The file of jobs is that of its snapshot, and not one of the same length.
func TestAFileOfJobsIsThatOfItsSnapshot(t *testing.T) {
	fs := faultfs.New(root)
	var paths []string
	for pri := range uint32(2) {
		w, err := Create(fs, dir)
		if err != nil {
			t.Fatal(err)
		}
		fetch := journal.Fetch{ID: 1, Place: journal.Place{Segment: 2, Offset: 10}, Size: 5}
		err = w.Full(&journal.Record{ID: 1, State: journal.Ready, Pri: pri, TTR: 1, Tube: "a", Absent: &fetch})
		m := metaOf(20 + uint64(pri))
		m.Highest, m.Files = 1, []spill.File{{Number: 2, Size: 4096}}
		_, path, err2 := w.Finish(m)
		if err = errors.Join(err, err2, Load(fs, path, queue{}, nil)); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path+"/"+JobsName)
	}
	err := errors.Join(fs.Remove(paths[0]), fs.Rename(paths[1], paths[0]))
	if err != nil {
		t.Fatal(err)
	}
	d := (*DamageError)(nil)
	if err := Load(fs, dir+"/"+nameOf(20, 3), queue{}, nil); !errors.As(err, &d) || d.File != paths[0] {
		t.Errorf("the file of another snapshot is taken: %v", err)
	}
}

// A snapshot that does not name the files of its bodies is not made.
func TestASnapshotNamesTheFilesOfItsBodies(t *testing.T) {
	fs, n, _, _ := aColdSnapshot(t)
	w, err := Create(fs, dir)
	if err == nil {
		err = n.write(w)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Finish(n.meta(11)); err == nil {
		t.Error("it is made")
	}
	if names := names(fs); strings.Contains(names, unfinished) {
		t.Errorf("there is %s", names)
	}
}

// A file that changes between the two times it is read for a stream ends the stream.
func TestAStreamIsWhatItsDescriptionSays(t *testing.T) {
	fs, _, m, path := aColdSnapshot(t)
	r := spill.NewReader(fs, bodiesDir, m.Files)
	defer r.Close()
	said, err := Plain(fs, path, r)
	if err != nil {
		t.Fatal(err)
	}
	if said.Stamp++; SendPlain(fs, path, &said, r, io.Discard) == nil {
		t.Error("it is sent as another one")
	}
}
