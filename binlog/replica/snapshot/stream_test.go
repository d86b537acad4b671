package snapshot

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"testing/iotest"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/record"
	"trellis/binlog/vfs/faultfs"
)

// aStream is what is sent of aSnapshot.
func aStream(t testing.TB) ([]byte, *node) {
	t.Helper()
	fs, n, path := aSnapshot(t)
	var b bytes.Buffer
	if err := Send(fs, path, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), n
}

// refused receives a stream that must be refused, and leaves nothing.
func refused(t *testing.T, what string, r io.Reader, want error) {
	t.Helper()
	fs := faultfs.New(root)
	if _, _, err := Receive(fs, dir, 9, 3, r); !errors.Is(err, want) {
		t.Fatalf("%s: %v", what, err)
	}
	if s := names(fs); s != "" {
		t.Fatalf("%s: there is %s", what, s)
	}
}

func TestAStreamThatIsNotWholeIsRefused(t *testing.T) {
	b, _ := aStream(t)
	for n := 0; n < len(b); n += 1 + n/50 {
		refused(t, "cut short", bytes.NewReader(b[:n]), ErrMalformed)
		refused(t, "a connection that was lost", io.MultiReader(bytes.NewReader(b[:n]), iotest.ErrReader(errBoom)), errBoom)
	}
	for at := 0; at < len(b); at += 1 + at/100 {
		bad := bytes.Clone(b)
		bad[at] ^= 1 << (at % 8)
		refused(t, "a wrong bit", bytes.NewReader(bad), ErrMalformed)
	}
}

func TestAStreamOfAnotherSnapshotIsRefused(t *testing.T) {
	b, _ := aStream(t)
	fs := faultfs.New(root)
	for _, e := range [][2]uint64{{8, 3}, {10, 3}, {9, 2}} {
		if _, _, err := Receive(fs, dir, e[0], e[1], bytes.NewReader(b)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%v: %v", e, err)
		}
	}
	n := int(le.Uint32(b[12:]))
	b[8] = 3
	forgeMeta(b[:n])
	refused(t, "a later version", bytes.NewReader(b), ErrVersion)
}

// A stream may come in any pieces.
func TestAStreamIsReadInAnyPieces(t *testing.T) {
	b, n := aStream(t)
	for _, r := range []io.Reader{iotest.OneByteReader(bytes.NewReader(b)), iotest.HalfReader(bytes.NewReader(b)), iotest.DataErrReader(bytes.NewReader(b))} {
		fs := faultfs.New(root)
		_, path, err := Receive(fs, dir, 9, 3, r)
		if err != nil {
			t.Fatal(err)
		}
		got := queue{}
		if err := errors.Join(Load(fs, path, got, nil), got.diff(n.jobs)); err != nil {
			t.Fatal(err)
		}
	}
}

// Each record is checked before the snapshot counts, although the checksums of its file
// and of the stream are right.
func TestARecordThatCannotBeIsRefusedWithRightChecksums(t *testing.T) {
	b, _ := aStream(t)
	var m Meta
	if err := m.decode(b[:le.Uint32(b[12:])]); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(file []byte){
		"a wrong byte of a body": func(f []byte) { f[record.HeaderSize+100]++ },
		"zeros for records":      func(f []byte) { clear(f[record.HeaderSize:]) },
		"a header of another":    func(f []byte) { f[16]++ },
		"no end":                 func(f []byte) { clear(f[len(f)-record.SmallSize:]) },
	} {
		bad := bytes.Clone(b)
		change(bad[le.Uint32(b[12:]) : int64(le.Uint32(b[12:]))+m.segments[0].Size])
		refused(t, what, bytes.NewReader(forgeStream(bad)), ErrMalformed)
	}
}

// forgeStream makes the checksums of a stream right, as far as its lengths make sense.
func forgeStream(b []byte) []byte {
	if len(b) < metaFixed+4 {
		return b
	}
	copy(b, metaMagic)
	le.PutUint32(b[8:], formatVersion)
	n := int64(le.Uint32(b[12:]))
	if n < metaFixed+4 || n > int64(len(b)) {
		return b
	}
	count := int64(le.Uint32(b[116:]))
	if count*segmentItem > n-4-metaFixed {
		return b
	}
	items := b[n-4-count*segmentItem : n-4]
	at := n
	for len(items) > 0 {
		size := int64(le.Uint64(items))
		if size < 0 || size > int64(len(b))-at {
			break
		}
		le.PutUint32(items[8:], sum(0, b[at:at+size]))
		at += size
		items = items[segmentItem:]
	}
	le.PutUint32(b[n-4:], sum(0, b[:n-4]))
	if at+trailerSize <= int64(len(b)) {
		copy(b[at:], trailerMagic)
		le.PutUint32(b[at+4:], sum(0, b[:at]))
	}
	return b
}

// A peer that announces a lot and sends little costs little.
func TestMemoryIsTakenAsBytesArrive(t *testing.T) {
	b := make([]byte, metaFixed)
	copy(b, metaMagic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[12:], maxMeta)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	refused(t, "a long description", bytes.NewReader(b), ErrMalformed)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4*copyBuffer {
		t.Errorf("%d bytes of memory", n)
	}
	le.PutUint32(b[12:], maxMeta+1)
	refused(t, "too long a description", bytes.NewReader(b), ErrMalformed)
}

func TestAFullDiskRefusesASnapshotAndKeepsNothing(t *testing.T) {
	b, n := aStream(t)
	for _, capacity := range []int64{1, 1000, int64(len(b)) / 2, int64(len(b)) - 400} {
		fs := faultfs.New(root)
		fs.SetCapacity(capacity)
		if _, _, err := Receive(fs, dir, 9, 3, bytes.NewReader(b)); !errors.Is(err, ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("receive, %d bytes: %v", capacity, err)
		}
		if _, _, err := newNode(7).fill(600).take(fs, 9); !errors.Is(err, ErrNoSpace) {
			t.Errorf("write, %d bytes: %v", capacity, err)
		}
		if s := names(fs); s != "" || fs.Used() != 0 {
			t.Errorf("%d bytes: there is %s", capacity, s)
		}
		fs.SetCapacity(0)
		_, path, err := Receive(fs, dir, 9, 3, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		got := queue{}
		if err := errors.Join(Load(fs, path, got, nil), got.diff(n.jobs)); err != nil {
			t.Fatal(err)
		}
	}
}

// What a full disk has left would keep a backup from being tried again.
func TestAnExtractThatFailsLeavesNothing(t *testing.T) {
	b, _ := aStream(t)
	fs := faultfs.New(root)
	complete := 0 // the number of the call that takes the description away
	fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "remove" {
			complete = c.N
		}
		return faultfs.Fault{}
	})
	if _, err := Extract(fs, root, bytes.NewReader(b)); err != nil || complete == 0 {
		t.Fatal(complete, err)
	}
	for at := 1; at < complete; at++ {
		fs := faultfs.New(root)
		op := ""
		fs.Hook(func(c faultfs.Call) faultfs.Fault {
			if c.N != at {
				return faultfs.Fault{}
			}
			op = c.Op
			return faultfs.Fault{Err: syscall.ENOSPC, Short: 3}
		})
		if _, err := Extract(fs, root, bytes.NewReader(b)); err == nil {
			t.Errorf("call %d, %s: it has failed, and nobody was told", at, op)
		}
		if es, err := fs.List(root); err != nil || len(es) > 0 {
			t.Errorf("call %d, %s: there is %v, %v", at, op, es, err)
		}
	}
}

// A damaged snapshot is not sent as a whole one.
func TestASenderNoticesDamage(t *testing.T) {
	fs, _, path := aSnapshot(t)
	name := filepath.Join(path, record.FileName(2))
	flip(t, fs, name, 500)
	var b bytes.Buffer
	var d *DamageError
	if err := Send(fs, path, &b); !errors.As(err, &d) || d.File != name {
		t.Fatalf("%v", err)
	}
	refused(t, "what was sent", &b, ErrMalformed)
}

// FuzzMeta feeds bytes to the readers of a description and a pointer, as they are and
// with checksums that are made right. What they accept is what is written for it.
func FuzzMeta(f *testing.F) {
	m := aMeta()
	f.Add(m.encode(), false)
	f.Add(m.encode(), true)
	f.Add((&pointer{1, 2, 3}).encode(), false)
	f.Add((&pointer{1, 2, 3}).encode(), true)
	f.Fuzz(func(t *testing.T, b []byte, forge bool) {
		b = bytes.Clone(b)
		if forge && len(b) >= 16 {
			if len(b) == pointerSize {
				le.PutUint32(b[36:], sum(0, b[:36]))
			} else {
				forgeMeta(b)
			}
		}
		var m Meta
		if m.decode(b) == nil && !bytes.Equal(m.encode(), b) {
			t.Fatalf("accepted %x, which is written %x", b, m.encode())
		}
		var p pointer
		if p.decode(b) == nil && !bytes.Equal(p.encode(), b) {
			t.Fatalf("accepted %x, which is written %x", b, p.encode())
		}
	})
}

// FuzzReceive feeds a stream to Receive, as it is and with checksums that are made right.
// It is refused and nothing is left, or it is a snapshot that loads and is sent as it
// came.
func FuzzReceive(f *testing.F) {
	// Short ones: the time that the fuzzer takes to make one shorter grows with its square.
	for jobs := range 2 {
		fs := faultfs.New(root)
		w, err := Create(fs, dir)
		if err != nil {
			f.Fatal(err)
		}
		for id := range uint64(jobs) {
			r := recordOf(id+1, 1, 1)
			if err := errors.Join(w.Full(&r), w.Delete(id+1)); err != nil {
				f.Fatal(err)
			}
		}
		_, path, err := w.Finish(Meta{Index: 1, Term: 1, ConfState: &raftpb.ConfState{Voters: []uint64{1}}, Highest: uint64(jobs)})
		if err != nil {
			f.Fatal(err)
		}
		var s bytes.Buffer
		if err := Send(fs, path, &s); err != nil {
			f.Fatal(err)
		}
		f.Add(s.Bytes(), true)
		f.Add(s.Bytes(), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, forge bool) {
		if forge {
			b = forgeStream(bytes.Clone(b))
		}
		index, term := uint64(9), uint64(3)
		if len(b) > metaFixed {
			index, term = le.Uint64(b[16:]), le.Uint64(b[24:])
		}
		fs := faultfs.New(root)
		fs.SetCapacity(1 << 20)
		r := bytes.NewReader(b)
		_, path, err := Receive(fs, dir, index, term, r)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrNoSpace) {
				t.Fatal(err)
			}
			if s := names(fs); s != "" {
				t.Fatalf("there is %s", s)
			}
			return
		}
		if err := Load(fs, path, queue{}, nil); err != nil {
			t.Fatal(err)
		}
		var s bytes.Buffer
		if err := Send(fs, path, &s); err != nil || !bytes.Equal(s.Bytes(), b[:len(b)-r.Len()]) {
			t.Fatalf("sent otherwise than it was received: %v", err)
		}
	})
}
