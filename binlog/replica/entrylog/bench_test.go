package entrylog

import (
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

func benchLog(b *testing.B, opts Options) *Log {
	opts.New = true
	l, err := Open(b.TempDir(), opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return l
}

// One batch a write on the operating system's files, with its sync.
func BenchmarkAppendAndSync(b *testing.B) {
	for _, entriesEach := range []uint64{1, 4} {
		for _, size := range []int{200, 16 << 10} {
			b.Run(fmt.Sprintf("entries=%d/size=%d", entriesEach, size), func(b *testing.B) {
				l := benchLog(b, Options{})
				if err := l.Append(Update{nil, hard(1, 1, 0)}); err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(entriesEach) * int64(size))
				b.ReportAllocs()
				es := entries(1, entriesEach, 1, size)
				next := uint64(1)
				us := []Update{{Entries: es}}
				for b.Loop() {
					// The log keeps entries, so that each has its own; the data is shared.
					for i, e := range es {
						es[i] = entryOf(next, e.GetData())
						next++
					}
					if err := l.Append(us...); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkReadBack(b *testing.B) {
	for _, cached := range []bool{true, false} {
		b.Run(fmt.Sprintf("cached=%v", cached), func(b *testing.B) {
			opts := Options{}
			if !cached {
				opts.CacheSize = 1
			}
			l := benchLog(b, opts)
			const count, size = 512, 16 << 10
			if err := l.Append(Update{entries(1, count, 1, size), hard(1, 1, 0)}); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(count * size)
			b.ReportAllocs()
			for b.Loop() {
				for at := uint64(1); at <= count; {
					es, err := l.Entries(at, count+1, 1<<20)
					if err != nil {
						b.Fatal(err)
					}
					at += uint64(len(es))
				}
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	l, err := Open(dir, Options{New: true})
	if err != nil {
		b.Fatal(err)
	}
	const count, size = 4096, 16 << 10
	for i := uint64(1); i <= count; i += 64 {
		if err := l.Append(Update{entries(i, i+63, 1, size), hard(1, 1, 0)}); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(count * size)
	b.ReportAllocs()
	for b.Loop() {
		l, err := Open(dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if last, _ := l.LastIndex(); last != count {
			b.Fatal(last)
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTerm(b *testing.B) {
	l := benchLog(b, Options{})
	if err := l.Append(Update{entries(1, 1000, 1, 10), hard(1, 1, 0)}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Term(500); err != nil {
			b.Fatal(err)
		}
	}
}

func entryOf(index uint64, data []byte) *raftpb.Entry {
	s := &stored{index: index, term: 1}
	s.Index, s.Term, s.Type, s.Data = &s.index, &s.term, &s.kind, data
	return &s.Entry
}
