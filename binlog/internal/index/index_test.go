package index

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/record"
)

var testHeader = record.Header{Seed: 77, Index: 5, Oldest: 2, Base: 4096, Synced: 4000, LastID: 9, Created: 12, Boot: 3}

// encode is a record of a length as its encoder wants it.
func encode(n int64, fill func(b []byte)) []byte {
	b := make([]byte, n)
	fill(b)
	return b
}

// randomRecord is a record of any kind that a log of one server may have, and of others that it may not.
func randomRecord(r *rand.Rand) []byte {
	const salt = record.Salt(9)
	text := func(max int) string { return string(bytes.Repeat([]byte{'a' + byte(r.IntN(26))}, r.IntN(max+1))) }
	chance := func(percent int) bool { return r.IntN(100) < percent }
	j := journal.Record{
		ID: 1 + r.Uint64N(1<<40), State: journal.Ready, Pri: r.Uint32(), Delay: r.Uint32(), TTR: r.Uint32(),
		Created: r.Int64(), Tube: fmt.Sprint("tube-", r.IntN(5)),
	}
	switch r.IntN(4) {
	case 1:
		j.State, j.Due = journal.Delayed, r.Int64()
	case 2:
		j.State, j.BuryOrder = journal.Buried, r.Uint64()
	}
	if chance(30) {
		j.Reserves, j.Timeouts, j.Releases, j.Buries, j.Kicks = r.Uint32(), 1, 2, 3, r.Uint32N(2)
	}
	j.Attempts = j.UsualAttempts()
	if chance(10) {
		j.Attempts += 5
	}
	if chance(10) {
		j.Origin = journal.Origin{Session: 1 << 40, Offset: 77}
	}
	small := func(k record.Kind) []byte {
		return encode(record.SmallSize, func(b []byte) { record.EncodeSmall(b, salt, k, r.Uint64N(5)) })
	}
	switch n := r.IntN(100); {
	case n < 50:
		if chance(20) {
			j.Keys = journal.Keys{Unique: "u" + text(63), Seconds: r.Uint32()}
		}
		if chance(20) {
			j.Keys.Limited, j.Keys.Limit = "l"+text(63), 3
		}
		if chance(20) {
			j.Keys.Terms = &journal.Terms{Fair: "f" + text(63), After: text(64), Expires: r.Uint32()}
		}
		if chance(5) {
			j = journal.Record{
				ID: j.ID, State: journal.Deleted, Due: r.Int64(), Tube: j.Tube,
				Keys: journal.Keys{Unique: "k" + text(63), Seconds: 9},
			}
		} else {
			j.Body = []byte(text(300))
		}
		return encode(j.Size(), func(b []byte) { record.EncodeFull(b, salt, &j) })
	case n < 65:
		return encode(record.SizeOfUpdate(&j), func(b []byte) { record.EncodeUpdate(b, salt, &j) })
	case n < 80:
		return small(record.Delete)
	case n < 85:
		return encode(record.StartSize, func(b []byte) { (&record.Run{At: 4, NextID: 8}).Encode(b, salt) })
	case n < 90:
		s := journal.DeadLetters(j.Tube, 3, "dead")
		s.Paused = chance(50)
		return encode(record.SettingSize(&s), func(b []byte) { record.EncodeSetting(b, salt, &s) })
	case n < 95:
		h := journal.Hold{ID: j.ID, End: 1e18, Reserves: 3}
		return encode(journal.HoldSize, func(b []byte) { record.EncodeHold(b, salt, &h) })
	}
	return small([]record.Kind{record.Mark, record.Drop, record.Stop, record.End}[r.IntN(4)])
}

// item is what a Read is expected to tell.
type item struct {
	offset int64
	rec    []byte
}

// build makes an index of random records, of so many bytes of them at least, and what each kind of block has.
func build(r *rand.Rand, size int64) (file []byte, used int64, want [kinds][]item) {
	b := NewBuilder(&testHeader, 0)
	used = record.HeaderSize
	mark := item{}
	for used < size {
		rec := randomRecord(r)
		b.Add(used, rec)
		file = append(file, b.Take()...)
		it := item{used, rec}
		switch record.KindOf(rec) {
		case record.Full, record.Update, record.Hold:
			want[States] = append(want[States], it)
		case record.Setting, record.Policy:
			want[States], want[Notes] = append(want[States], it), append(want[Notes], it)
		case record.Delete:
			want[Ends] = append(want[Ends], item{0, rec})
		case record.Mark:
			mark = it
		default:
			want[Notes] = append(want[Notes], it)
		}
		clear(rec[:4]) // the builder has kept nothing of it, and indexes have no checksums of records
		used += int64(len(rec))
	}
	if mark.rec != nil && record.Number(mark.rec) != 0 {
		want[Notes] = append(want[Notes], mark)
	}
	return append(file, b.Finish(used, 123)...), used, want
}

// same compares a record of a segment with what an index tells of it.
func same(want, got []byte) error {
	if record.KindOf(want) != record.Full {
		if !bytes.Equal(want, got) {
			return fmt.Errorf("%x became %x", want, got)
		}
		return nil
	}
	var a, b journal.Record
	record.DecodeFull(want, &a, new(record.Names))
	size := record.DecodeHead(got, &b, new(record.Names))
	if int(size) != len(a.Body) || record.Length(got) != int64(len(want)) {
		return fmt.Errorf("a body of %d bytes in %d became %d in %d", len(a.Body), len(want), size, record.Length(got))
	}
	if a.Body = nil; !reflect.DeepEqual(a, b) {
		return fmt.Errorf("%+v became %+v", a, b)
	}
	return nil
}

func open(file []byte) (*Index, error) {
	return Open(bytes.NewReader(file), int64(len(file)), &testHeader)
}

func TestWhatIsAddedIsReadAgain(t *testing.T) {
	for seed := range uint64(20) {
		file, used, want := build(rand.New(rand.NewPCG(seed, 1)), 1<<(seed+2)) // up to a few blocks
		x, err := open(file)
		if err != nil {
			t.Fatal(err)
		}
		if x.Used != used || x.Tail != 123 || x.Boot != 0 {
			t.Fatalf("%d used bytes, tail %d, boot %d", x.Used, x.Tail, x.Boot)
		}
		for kind := range kinds {
			if n := x.Records(kind); n != int64(len(want[kind])) {
				t.Fatalf("seed %d: kind %d has %d records, not %d", seed, kind, n, len(want[kind]))
			}
			err := x.Read(kind, func(offset int64, rec []byte) error {
				next := want[kind][0]
				want[kind] = want[kind][1:]
				if offset != next.offset {
					return fmt.Errorf("a record at %d is told of at %d", next.offset, offset)
				}
				return same(next.rec, rec)
			})
			if err != nil || len(want[kind]) > 0 {
				t.Fatalf("seed %d, kind %d: %v, %d records left", seed, kind, err, len(want[kind]))
			}
		}
	}
}

// Records that are in other files are told with the number of the file, in each block anew.
func TestARecordIsToldWithItsFile(t *testing.T) {
	j := journal.Record{ID: 1, State: journal.Ready, Tube: "default", Absent: &journal.Fetch{Size: 100}}
	b := NewBuilder(&testHeader, 0)
	var file []byte
	length := (&journal.Record{Tube: j.Tube, Body: make([]byte, j.Absent.Size)}).Size()
	of := func(i int) uint32 { return [...]uint32{0, 2, 3, 1 << 31}[i/500%4] }
	const n = 5000 // some blocks
	for i := range n {
		b.In(of(i))
		b.Add(int64(i)*8, record.EncodeHead(nil, &j))
		file = append(file, b.Take()...)
	}
	x, err := open(append(file, b.Finish(0, 0)...))
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	err = x.Read(States, func(offset int64, rec []byte) error {
		if x.File() != of(i) || offset != int64(i)*8 || record.Length(rec) != length {
			t.Fatalf("record %d is told of in file %d at %d, with %d bytes", i, x.File(), offset, record.Length(rec))
		}
		i++
		return nil
	})
	if err != nil || i != n || len(x.blocks) < 3 {
		t.Errorf("%d records, %v", i, err)
	}
}

func TestAUsualJobTakes48Bytes(t *testing.T) {
	j := journal.Record{ID: 1, State: journal.Ready, Tube: "default", Body: make([]byte, 100)}
	b := NewBuilder(&testHeader, 0)
	length := func(n int) int {
		for range n {
			b.Add(80, encode(j.Size(), func(b []byte) { record.EncodeFull(b, 1, &j) }))
		}
		return len(b.blocks[States].b)
	}
	if first, more := length(1), length(10); more-first != 480 {
		t.Errorf("ten jobs take %d bytes", more-first)
	}
}

func TestABuilderAllocatesNothingForAJob(t *testing.T) {
	job := func(tube string) []byte {
		j := journal.Record{ID: 1, State: journal.Ready, Tube: tube, Body: make([]byte, 100)}
		return encode(j.Size(), func(b []byte) { record.EncodeFull(b, 1, &j) })
	}
	jobs := [][]byte{job("default"), job("other")}
	b, taken := NewBuilder(&testHeader, 0), 0
	const n = 20_000
	allocs := testing.AllocsPerRun(10, func() {
		for i := range n {
			b.Add(80, jobs[i/3%2])
			if out := b.Take(); out != nil {
				taken++
				Free(out)
			}
		}
	})
	// A block has a copy of the name of each tube. Its memory may be new: the collector and the race detector empty pools.
	if allocs > n/20 || taken < 10 {
		t.Errorf("%v allocations for %d jobs, in %d blocks", allocs, n, taken/11)
	}
}

// whole reads all of an index.
func whole(file []byte) error {
	x, err := open(file)
	if err != nil {
		return err
	}
	for kind := range kinds {
		if err := x.Read(kind, func(int64, []byte) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

func TestEveryCutAndEveryFlippedBitIsFound(t *testing.T) {
	file, _, _ := build(rand.New(rand.NewPCG(1, 2)), 3000)
	if err := whole(file); err != nil {
		t.Fatal(err)
	}
	for n := range file {
		if err := whole(file[:n]); !errors.Is(err, ErrBad) {
			t.Fatalf("cut at %d of %d: %v", n, len(file), err)
		}
		for bit := range 8 {
			file[n] ^= 1 << bit
			if err := whole(file); !errors.Is(err, ErrBad) {
				t.Fatalf("bit %d of byte %d of %d: %v", bit, n, len(file), err)
			}
			file[n] ^= 1 << bit
		}
	}
	if err := whole(append(file, 0)); !errors.Is(err, ErrBad) {
		t.Errorf("with another byte: %v", err)
	}
}

func TestAnIndexIsForOneSegment(t *testing.T) {
	file, _, _ := build(rand.New(rand.NewPCG(1, 2)), 1000)
	for name, change := range map[string]func(h *record.Header){
		"seed": func(h *record.Header) { h.Seed++ }, "number": func(h *record.Header) { h.Index++ },
		"position": func(h *record.Header) { h.Base += 8 }, "header": func(h *record.Header) { h.Created++ },
	} {
		h := testHeader
		change(&h)
		if _, err := Open(bytes.NewReader(file), int64(len(file)), &h); !errors.Is(err, ErrBad) {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

func TestTailIsOfTheLastBytesThatAreUsed(t *testing.T) {
	segment := bytes.Repeat([]byte{1}, 10000)
	tail := func(used int64) uint32 {
		n, err := Tail(bytes.NewReader(segment), used)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	was, short := tail(9000), tail(100)
	segment[9000]++
	segment[9000-tailSize-1]++
	if tail(9000) != was {
		t.Error("other bytes count")
	}
	segment[8999]++
	segment[99]++
	if tail(9000) == was || tail(100) == short {
		t.Error("the last byte does not count")
	}
	if _, err := Tail(bytes.NewReader(segment), 10001); err == nil {
		t.Error("the segment is too short, and has a tail")
	}
}

// FuzzIndex feeds blocks with right checksums to the reader. It must not fail in another way than by ErrBad, and what
// it tells must be what the decoders take.
func FuzzIndex(f *testing.F) {
	file, _, _ := build(rand.New(rand.NewPCG(1, 2)), 5000)
	x, err := open(file)
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range x.blocks {
		f.Add(uint8(p.kind), p.records, file[p.at:][:p.size])
	}
	f.Fuzz(func(t *testing.T, kind uint8, records uint32, block []byte) {
		b := NewBuilder(&testHeader, 0)
		e := &b.blocks[kind%uint8(kinds)]
		e.b, e.n = block, records
		x, err := open(b.Finish(100, 0))
		if len(block) > BlockSize+maxItem {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		names := new(record.Names)
		err = x.Read(Kind(kind)%kinds, func(_ int64, rec []byte) error {
			var r journal.Record
			switch record.KindOf(rec) {
			case record.Full:
				record.DecodeHead(rec, &r, names)
				if !record.Valid(&r) && r.State != journal.Deleted {
					t.Fatalf("a job that cannot be: %+v", r)
				}
			case record.Update:
				record.DecodeUpdate(rec, &r)
			case record.Setting, record.Policy:
				record.DecodeSetting(rec)
			case record.Hold:
				record.DecodeHold(rec)
			case record.Start:
				new(record.Run).Decode(rec)
			}
			return nil
		})
		if err != nil && !errors.Is(err, ErrBad) {
			t.Fatal(err)
		}
	})
}
