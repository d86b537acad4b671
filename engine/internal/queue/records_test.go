package queue

import (
	"flag"
	"math"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"trellis/engine/internal/arena"
)

// record is as large as a job's record in the engine.
type record struct {
	Links
	pri uint32
	_   [36]byte
}

// records are what queues under test order.
type records struct {
	tb    rapid.TB
	slab  arena.Slab[record]
	table Table
}

func newRecords(tb interface {
	rapid.TB
	Cleanup(func())
},
) *records {
	s := &records{tb: tb, slab: arena.NewSlab[record]()}
	s.table = TableOf(&s.slab.Pool)
	tb.Cleanup(func() {
		s.slab.Walk(^Ref(0), math.MaxInt, s.slab.Free)
		s.slab.Plan()
		s.slab.Plan()
	})
	return s
}

// add makes a record that stands in no queue.
func (s *records) add(id uint64, at int64, pri uint32) Ref {
	r, err := s.slab.Alloc()
	if err != nil {
		s.tb.Fatal(err)
	}
	*s.slab.At(r) = record{Links: Links{ID: id, At: at}, pri: pri}
	return r
}

func (s *records) links(r Ref) *Links { return &s.slab.At(r).Links }
func (s *records) pri(r Ref) uint32   { return s.slab.At(r).pri }

// move gives a record another name. Whoever has it in a queue must be told.
func (s *records) move(r Ref) Ref {
	to := s.add(0, 0, 0)
	*s.slab.At(to) = *s.slab.At(r)
	*s.slab.At(r) = record{}
	s.slab.Free(r)
	return to
}

// oneOf draws an index of n things, and skips the action if there is none.
func oneOf(t *rapid.T, n int) int {
	if n == 0 {
		t.Skip("none")
	}
	return rapid.IntRange(0, n-1).Draw(t, "index")
}

// check checks a property with more steps than rapid does by itself, and in proof more
// often, unless the command line says how often.
func check(t *testing.T, checks, steps int, property func(*rapid.T)) {
	if !proof {
		checks /= 5
	}
	for name, n := range map[string]int{"rapid.checks": checks, "rapid.steps": steps} {
		f := flag.Lookup(name)
		if old := f.Value.String(); old == f.DefValue {
			if err := f.Value.Set(strconv.Itoa(n)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Value.Set(old) })
		}
	}
	rapid.Check(t, property)
}
