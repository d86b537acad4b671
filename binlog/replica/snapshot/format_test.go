package snapshot

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"trellis/binlog/record"
	"trellis/binlog/sealed"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

func aMeta() Meta {
	m := metaOf(0x0102)
	m.BatchTerm, m.Sequence, m.Stamp, m.Highest, m.Decided, m.Version = 2, 3, 4, 5, 6, 7
	m.ConfState.VotersOutgoing, m.ConfState.LearnersNext, m.ConfState.AutoLeave = []uint64{15}, []uint64{16, 17}, proto.Bool(true)
	m.Members = m.Members[:1]
	m.Records, m.Fulls, m.Bytes = 9, 8, 96+1024
	m.segments = []sealed.Segment{{Size: 96, Sum: 0xa1}, {Size: 1024, Sum: 0xa2}}
	return m
}

// The bytes of version 1 do not change.
func TestTheFormatIsAsWritten(t *testing.T) {
	m := aMeta()
	b := m.encode()
	u64 := func(vs ...int) (s string) {
		for _, v := range vs {
			s += hex.EncodeToString(le.AppendUint64(nil, uint64(v)))
		}
		return s
	}
	want := hex.EncodeToString([]byte("TRELSNP\n")) + "01000000" + "f1000000" +
		u64(0x0102, 3, 2, 3, 4, 5, 6) + "07000000" + "00000000" + u64(9, 8, 1120) +
		"0300" + "0100" + "0100" + "0200" + "01" + "00" + "0100" + "02000000" +
		u64(11, 12, 13, 14, 15, 16, 17) +
		u64(11, 21) + "0200" + "0f00" + hex.EncodeToString([]byte("n1127.0.0.1:11390")) +
		u64(96) + "a1000000" + u64(1024) + "a2000000"
	if got := hex.EncodeToString(b[:len(b)-4]); got != want {
		t.Errorf("meta:\ngot  %s\nwant %s", got, want)
	}
	if sum(0, b[:len(b)-4]) != le.Uint32(b[len(b)-4:]) {
		t.Error("the checksum of meta is elsewhere")
	}
	p := pointer{0x0102, 3, 0xabcd}
	want = hex.EncodeToString([]byte("TRELCUR\n")) + "01000000" + "cdab0000" + u64(0x0102, 3) + "00000000"
	if got := hex.EncodeToString(p.encode()[:36]); got != want {
		t.Errorf("pointer:\ngot  %s\nwant %s", got, want)
	}
}

func TestADescriptionIsReadAsItWasWritten(t *testing.T) {
	m := aMeta()
	var got Meta
	if err := got.decode(m.encode()); err != nil || !sameMeta(&got, &m) || got.sum != m.sum {
		t.Fatalf("%+v, %v", got, err)
	}
	if !proto.Equal(got.ConfState, m.ConfState) || got.Members[0] != m.Members[0] || got.segments[1] != m.segments[1] || got.Stamp != 4 {
		t.Fatalf("%+v", got)
	}
}

func TestEveryBitOfADescriptionAndAPointerIsChecked(t *testing.T) {
	m := aMeta()
	for what, x := range map[string]struct {
		good   []byte
		decode func(b []byte) error
	}{
		"meta":    {m.encode(), func(b []byte) error { return new(Meta).decode(b) }},
		"pointer": {(&pointer{1, 2, 3}).encode(), func(b []byte) error { return new(pointer).decode(b) }},
	} {
		for at := range 8 * len(x.good) {
			b := bytes.Clone(x.good)
			b[at/8] ^= 1 << (at % 8)
			if x.decode(b) == nil {
				t.Fatalf("%s: bit %d", what, at)
			}
		}
		for n := range x.good {
			if x.decode(x.good[:n]) == nil {
				t.Fatalf("%s: %d bytes", what, n)
			}
		}
		if x.decode(append(bytes.Clone(x.good), 0)) == nil {
			t.Fatalf("%s: a byte too much", what)
		}
	}
}

// forgeMeta makes the checksum and the length of a description right.
func forgeMeta(b []byte) []byte {
	le.PutUint32(b[12:], uint32(len(b)))
	le.PutUint32(b[len(b)-4:], sum(0, b[:len(b)-4]))
	return b
}

func TestDescriptionsThatCannotBeAreRefused(t *testing.T) {
	for what, change := range map[string]func(b []byte) []byte{
		"no entry":               func(b []byte) []byte { clear(b[16:24]); return b },
		"no term":                func(b []byte) []byte { clear(b[24:32]); return b },
		"a batch to come":        func(b []byte) []byte { b[32] = 4; return b },
		"decided ids to come":    func(b []byte) []byte { b[64] = 7; return b },
		"reserved bytes":         func(b []byte) []byte { b[76] = 1; return b },
		"more fulls than all":    func(b []byte) []byte { b[88] = 10; return b },
		"more records than fit":  func(b []byte) []byte { b[81] = 1; return b },
		"another size":           func(b []byte) []byte { b[96] = 8; return b },
		"no voters":              func(b []byte) []byte { clear(b[104:106]); return b },
		"many voters":            func(b []byte) []byte { b[105] = 255; return b },
		"a flag":                 func(b []byte) []byte { b[112] = 2; return b },
		"many members":           func(b []byte) []byte { b[115] = 255; return b },
		"no segments":            func(b []byte) []byte { clear(b[116:120]); return b[:len(b)-24] },
		"many segments":          func(b []byte) []byte { b[119] = 255; return b },
		"a voter without id":     func(b []byte) []byte { clear(b[120:128]); return b },
		"a name that is long":    func(b []byte) []byte { b[193] = 255; return b },
		"a name that cannot be":  func(b []byte) []byte { b[196] = 0; return b },
		"a segment that is long": func(b []byte) []byte { b[len(b)-4-10] = 255; return b },
		"bytes at the end":       func(b []byte) []byte { return append(b, make([]byte, 12)...) },
	} {
		m := aMeta()
		if err := new(Meta).decode(forgeMeta(change(m.encode()))); err == nil || errors.Is(err, ErrVersion) {
			t.Errorf("%s: %v", what, err)
		}
	}
	m := aMeta()
	b := m.encode()
	b[8] = 3
	if err := new(Meta).decode(forgeMeta(b)); !errors.Is(err, ErrVersion) {
		t.Errorf("a later version: %v", err)
	}
}

// Whatever byte is wrong: the damage names the file, and an offset that is not behind it.
func TestDamageIsReportedWithFileAndOffset(t *testing.T) {
	fs, _, path := aSnapshot(t)
	es, err := fs.List(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		name := filepath.Join(path, e.Name)
		for off := int64(0); off < e.Size; off += 7 {
			flip(t, fs, name, off)
			damaged(t, fs, path, name, off)
			flip(t, fs, name, off)
		}
		f, err := fs.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := readFile(fs, name, maxFile)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int64{0, 8, 64, e.Size - 1, e.Size + 8} {
			if err := f.Truncate(size); err != nil {
				t.Fatal(err)
			}
			damaged(t, fs, path, name, size)
		}
		if err := fs.Remove(name); err != nil {
			t.Fatal(err)
		}
		damaged(t, fs, path, name, 0)
		if err := vfs.WriteFile(fs, name, b); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := loaded(fs); err != nil {
		t.Fatal(err)
	}
}

func damaged(t *testing.T, fs vfs.FS, path, name string, off int64) {
	t.Helper()
	err := Load(fs, path, queue{}, nil)
	var d *DamageError
	if !errors.As(err, &d) || d.File != name || d.Offset > off {
		t.Fatalf("%s: damage at %d: %v", name, off, err)
	}
}

// Segments that are sound, but of which one stands in another's place.
func TestSegmentsInTheWrongPlaceAreDamage(t *testing.T) {
	fs, n, path := aSnapshot(t)
	other, otherPath, err := n.take(fs, 10)
	if err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(path, record.FileName(1))
	for _, from := range []string{filepath.Join(otherPath, record.FileName(1)), filepath.Join(path, record.FileName(2))} {
		b, err := readFile(fs, from, maxFile)
		if err != nil {
			t.Fatal(err)
		}
		was, err := readFile(fs, first, maxFile)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(fs.Remove(first), vfs.WriteFile(fs, first, b)); err != nil {
			t.Fatal(err)
		}
		damaged(t, fs, path, first, maxFile)
		if err := errors.Join(fs.Remove(first), vfs.WriteFile(fs, first, was)); err != nil {
			t.Fatal(err)
		}
	}
	// The pointer names the description, not only the entry.
	m := other
	m.Index = 9
	if err := errors.Join(fs.Remove(filepath.Join(path, metaName)), vfs.WriteFile(fs, filepath.Join(path, metaName), m.encode())); err != nil {
		t.Fatal(err)
	}
	var d *DamageError
	if _, _, err := Current(fs, dir); !errors.As(err, &d) {
		t.Errorf("another description: %v", err)
	}
	if s := names(fs); s != "10-3 9-3 current" {
		t.Errorf("damage was removed: there is %s", s)
	}
}

// A pointer that cannot be read, or names what is not there, is no directory without a
// snapshot, and nothing is removed for it.
func TestADamagedPointerIsNotTakenForNone(t *testing.T) {
	for what, change := range map[string]func(fs *faultfs.FS){
		"a wrong byte": func(fs *faultfs.FS) { flip(t, fs, filepath.Join(dir, pointerName), 20) },
		"a long one": func(fs *faultfs.FS) {
			f, _ := fs.Open(filepath.Join(dir, pointerName))
			_ = f.Truncate(41)
		},
		"no snapshot":    func(fs *faultfs.FS) { _ = vfs.RemoveAll(fs, filepath.Join(dir, "9-3")) },
		"no description": func(fs *faultfs.FS) { _ = fs.Remove(filepath.Join(dir, "9-3", metaName)) },
		"an unreadable one": func(fs *faultfs.FS) {
			fs.Hook(func(c faultfs.Call) faultfs.Fault {
				if c.Op == "read" {
					return faultfs.Fault{Err: fmt.Errorf("boom")}
				}
				return faultfs.Fault{}
			})
		},
	} {
		fs, n, _ := aSnapshot(t)
		if _, _, err := n.take(fs, 10); err != nil {
			t.Fatal(err)
		}
		before := names(fs)
		change(fs)
		if what == "no snapshot" {
			before = strings.ReplaceAll(before, "9-3 ", "")
		}
		var d *DamageError
		if _, _, err := Current(fs, dir); !errors.As(err, &d) {
			t.Errorf("%s: %v", what, err)
		}
		fs.Hook(nil)
		if s := names(fs); s != before {
			t.Errorf("%s: there was %s, and is %s", what, before, s)
		}
	}
}
