package entrylog

import (
	"bytes"
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// forge makes the checksums of a segment's bytes right, as far as its lengths make
// sense, so that a fuzzer comes behind them.
func forge(b []byte) {
	if len(b) < headerSize {
		return
	}
	copy(b, magic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[100:], sum(0, b[:100]))
	salt := newSalt(le.Uint64(b[16:]))
	pos, chain := le.Uint64(b[24:])+headerSize, le.Uint32(b[88:])
	b = b[headerSize:]
	for len(b) >= frameSize && !zero(b[:frameSize]) {
		size := int64(le.Uint32(b[16:]))
		if size < frameSize || size > int64(len(b)) {
			size = frameSize
		}
		f := frame{chain: chain, pos: pos, size: uint32(size), content: salt}
		for items := b[frameSize:size]; ; f.items++ {
			n := itemLen(items)
			if n < 0 || n > int64(len(items)) {
				break
			}
			le.PutUint32(items, sum(salt, items[4:n]))
			f.content = sum(f.content, items[:itemSize])
			items = items[n:]
		}
		f.encode(b, salt)
		pos, chain, b = pos+uint64(size), f.sum, b[size:]
	}
}

// FuzzOpen opens a log whose segment holds any bytes. It is refused, or it is a log
// that keeps its word: what is appended to it is there at the next start, with all
// that was there before.
func FuzzOpen(f *testing.F) {
	m, n := aLog(f)
	names := m.segments()
	for _, forged := range []bool{false, true} {
		f.Add(m[names[0]][:2000], uint64(0), uint64(0), forged)
		f.Add(m[names[len(names)-1]][:1500], n.snapshot.Index, n.snapshot.Term, forged)
	}
	one := newNode(1, Options{})
	if err := errors.Join(one.start(true), one.append(Update{entries(1, 3, 1, 9), hard(2, 1, 2)}), one.append(Update{entries(3, 4, 2, 5), nil}), one.trim(EntryID{2, 1}), one.append(Update{entries(5, 5, 2, 0), nil}), one.install(EntryID{9, 3})); err != nil {
		f.Fatal(err)
	}
	b := imageOf(f, one.fs)[fileName(1)]
	one.crash(false)
	f.Add(b[:1000], uint64(9), uint64(3), true)
	f.Add(b[:400], uint64(2), uint64(1), true)
	f.Fuzz(func(t *testing.T, b []byte, index, term uint64, forged bool) {
		if len(b) > 16<<10 {
			return
		}
		b = bytes.Clone(b)
		if forged {
			forge(b)
		}
		var h header
		if h.decode(b) != "" {
			h.index = 1
		}
		if h.index == 0 || h.index > 1<<31 {
			return
		}
		fs := image{fileName(h.index): b}.fs(t)
		opts := Options{FS: fs, SegmentSize: MinSegmentSize, Snapshot: metadata(EntryID{index, term}), CacheSize: 1}
		l, err := Open(testDir, opts)
		if err != nil {
			return
		}
		// Twice, for the second start meets what the first one made of the bytes.
		var want model
		for range 2 {
			hs, _, err := l.InitialState()
			if err != nil {
				t.Fatal(err)
			}
			want = model{hard: hardOf(hs)}
			first, _ := l.FirstIndex()
			last, _ := l.LastIndex()
			want.base.Index = first - 1
			if want.base.Term, err = l.Term(first - 1); err != nil {
				t.Fatal(err)
			}
			for i := first; i <= last; i++ {
				es, err := l.Entries(i, i+1, 0)
				if err != nil {
					t.Fatalf("entry %d: %v", i, err)
				}
				want.entries = append(want.entries, es...)
			}
			if last == ^uint64(0) || want.hard.term == ^uint64(0) {
				break
			}
			u := Update{[]*raftpb.Entry{entry(last+1, want.hard.term+1, 30)}, hard(want.hard.term+1, 1, last)}
			if err := l.Append(u); err != nil {
				t.Fatal(err)
			}
			want.update(u)
			fs = fs.Killed()
			l.Close()
			opts.FS = fs
			if l, err = Open(testDir, opts); err != nil {
				t.Fatalf("second start: %v", err)
			}
			if err := want.diff(l); err != nil {
				t.Fatalf("second start: %v", err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
