package load

import (
	"testing"

	"trellis/bench"
)

func newTestBook() *book {
	return newBook(new(violations), newBodies(bench.FixedSize(20), 1), true)
}

// body is the body of job seq of a test book.
func (k *book) body(seq uint64) []byte { return k.bodies.append(nil, seq, k.bodies.size(seq)) }

func TestBookTakesAnyOrderOfWhatConnectionsReport(t *testing.T) {
	k := newTestBook()
	// The usual order.
	k.inserted(1, 10, 7, 100)
	if tag, took := k.reserved(1, k.body(10), 150); tag != 7 || took != 50 {
		t.Errorf("got tag %d, %d ns", tag, took)
	}
	k.deleted(1)
	// Another connection gets the job before the put is known to be answered.
	if _, took := k.reserved(2, k.body(11), 150); took >= 0 {
		t.Errorf("a time of %d ns, and the put is not known", took)
	}
	k.deleted(2)
	if took := k.inserted(2, 11, 0, 100); took != 50 {
		t.Errorf("got %d ns", took)
	}
	// Released and buried jobs come again, and count once.
	k.inserted(3, 12, 0, 100)
	for i := range 3 {
		if _, took := k.reserved(3, k.body(12), 200); (took >= 0) != (i == 0) {
			t.Errorf("time %d: got %d ns", i, took)
		}
		k.release(3)
	}
	k.reserved(3, k.body(12), 300)
	k.deleted(3)
	k.close(false)
	if r := k.report(); r != nil {
		t.Errorf("violations: %v", r)
	}
}

func TestBookForgetsPagesWhoseJobsAreGone(t *testing.T) {
	k := newTestBook()
	const jobs = 100 * pageSize * bookStripes
	for id := range uint64(jobs) {
		k.inserted(id, id, 0, 0)
		k.reserved(id, k.body(id), 1)
		k.deleted(id)
	}
	for i := range k.stripes {
		s := &k.stripes[i]
		if len(s.pages) > 0 || len(s.free) > 1 || len(s.closedPages) > 2 {
			t.Errorf("stripe %d keeps %d pages, %d free ones, and %d entries for 100 closed ones", i, len(s.pages), len(s.free), len(s.closedPages))
		}
	}
	// They are remembered all the same.
	k.reserved(3, k.body(3), 1)
	k.deleted(pageSize + 1)
	k.inserted(2*pageSize, 1, 0, 0)
	if r := k.report(); len(r) != 1 || r[0].Kind != bench.ViolationDuplicate || r[0].Count != 3 {
		t.Errorf("got %v", r)
	}
}

func TestBookListsWhatIsLeft(t *testing.T) {
	k := newTestBook()
	for id := range uint64(1000) {
		k.inserted(id, id, 0, 0)
		if id%10 != 0 {
			k.deleted(id)
		}
	}
	n := 0
	k.ids(func(id uint64) {
		if n++; id%10 != 0 {
			t.Errorf("job %d is not left", id)
		}
	})
	if n != 100 {
		t.Errorf("%d jobs, want 100", n)
	}
	k.close(true)
	if r := k.report(); r != nil {
		t.Errorf("violations: %v", r)
	}
	k.close(false)
	if r := k.report(); len(r) != 1 || r[0].Kind != bench.ViolationLost || r[0].Count != 100 || len(r[0].Examples) != violationExamples {
		t.Errorf("got %v", r)
	}
}
