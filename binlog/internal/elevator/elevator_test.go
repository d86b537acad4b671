package elevator

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trellis/binlog/journal"
)

type (
	wanted = Request[int]
	moving = Read[int]
)

// model is what an elevator has to do, looked up in lists of everything.
type model struct {
	t        *rapid.T
	e        Elevator[int]
	now      time.Time
	written  journal.Place
	n        int
	ring     []uint64             // clients by turns
	queues   map[string][]*wanted // of a client, or a lane: what waits, in order
	later    []*wanted            // to be tried again
	held     []*wanted            // not written
	suspects map[*wanted]bool     // tried for the last time
	open     []*moving
	tries    map[*wanted]int
	told     map[*wanted]bool
	done     map[*wanted]int64 // up to where it was read since it has failed
}

func key(r *wanted) string {
	if r.Lane == journal.Urgent {
		return fmt.Sprint("client ", r.Turn)
	}
	return fmt.Sprint("lane ", r.Lane)
}

func (m *model) enqueue(r *wanted) {
	k := key(r)
	m.queues[k] = append(m.queues[k], r)
	if r.Lane == journal.Urgent && !slices.Contains(m.ring, r.Turn) {
		m.ring = append(m.ring, r.Turn)
	}
}

func (m *model) dequeue(r *wanted) {
	k := key(r)
	i := slices.Index(m.queues[k], r)
	if i < 0 {
		m.t.Fatalf("a read serves %+v, which does not wait", *r)
	}
	m.queues[k] = slices.Delete(m.queues[k], i, i+1)
}

// ends takes what has ended. why tells the error that each must have.
func (m *model) ends(ends []End[int], why func(r *wanted) error) {
	for _, x := range ends {
		if m.told[x.Request] {
			m.t.Fatalf("request %d ends twice", x.Of)
		}
		m.told[x.Request] = true
		if want := why(x.Request); !errors.Is(x.Err, want) {
			m.t.Fatalf("request %d ends with %v, should with %v", x.Of, x.Err, want)
		}
		m.later = slices.DeleteFunc(m.later, func(r *wanted) bool { return r == x.Request })
		m.held = slices.DeleteFunc(m.held, func(r *wanted) bool { return r == x.Request })
		delete(m.suspects, x.Request)
		k := key(x.Request)
		m.queues[k] = slices.DeleteFunc(m.queues[k], func(r *wanted) bool { return r == x.Request })
	}
}

// gaveUp says that everything but what is read has ended with an error.
func (m *model) gaveUp() {
	for k, q := range m.queues {
		if len(q) > 0 {
			m.t.Fatalf("the disk gives nothing, and %s still has %d that wait", k, len(q))
		}
	}
	if len(m.later)+len(m.held)+len(m.suspects) > 0 {
		m.t.Fatalf("the disk gives nothing, and others wait: %d %d %d", len(m.later), len(m.held), len(m.suspects))
	}
	m.ring = nil
}

func (m *model) add() {
	var rs []*wanted
	for range rapid.IntRange(1, 6).Draw(m.t, "requests") {
		file := uint32(rapid.IntRange(1, 3).Draw(m.t, "file"))
		from := int64(rapid.IntRange(0, 60).Draw(m.t, "from")) * 8192
		length := int64(rapid.SampledFrom([]int{200, 4000, 40000, 90000, 200000, 400000}).Draw(m.t, "length"))
		m.n++
		rs = append(rs, &wanted{
			Place: journal.Place{Segment: file, Offset: uint32(from / 8)}, From: from, To: from + length,
			Lane: journal.Lane(rapid.IntRange(0, 3).Draw(m.t, "lane")), Turn: uint64(rapid.IntRange(1, 4).Draw(m.t, "client")), Of: m.n,
		})
	}
	refused := m.e.disk.rests(m.now)
	ends := m.e.Add(rs, m.now)
	if refused != (len(ends) == len(rs)) || !refused && len(ends) > 0 {
		m.t.Fatalf("%d of %d are refused, at rest: %v", len(ends), len(rs), refused)
	}
	for _, r := range rs {
		switch {
		case refused:
		case m.readable(r):
			m.enqueue(r)
		default:
			m.held = append(m.held, r)
		}
	}
	m.ends(ends, func(*wanted) error { return journal.ErrHangs })
}

func (m *model) readable(r *wanted) bool {
	return r.Place.Segment < m.written.Segment ||
		r.Place.Segment == m.written.Segment && r.Place.Offset < m.written.Offset
}

func (m *model) write() {
	m.written.Offset += uint32(rapid.IntRange(1, 20000).Draw(m.t, "written"))
	m.e.Written(m.written)
	for _, r := range m.held {
		if m.readable(r) {
			m.enqueue(r)
		}
	}
	m.held = slices.DeleteFunc(m.held, m.readable)
}

func (m *model) inFlight(urgent bool) (n int, bytes int64) {
	for _, read := range m.open {
		if (read.Lane == journal.Urgent) == urgent && !read.Probe && read.state != hung {
			n++
			bytes += read.To - read.From
		}
	}
	return n, bytes
}

func (m *model) read() {
	load := Load{Commits: rapid.Bool().Draw(m.t, "commits"), Compaction: rapid.Bool().Draw(m.t, "compaction")}
	doubt := m.e.disk.belief
	if doubt == trusted {
		for _, r := range m.later {
			if !m.now.Before(r.due) {
				m.enqueue(r)
			}
		}
		m.later = slices.DeleteFunc(m.later, func(r *wanted) bool { return !m.now.Before(r.due) })
	}
	n, bytes := m.inFlight(true)
	bulk, _ := m.inFlight(false)
	most := 8
	if load.Commits {
		most = 2
	}
	read := m.e.Next(m.now, load)
	if doubt != trusted {
		if doubt == doubted && (read == nil || !read.Probe) || doubt == probed && read != nil {
			m.t.Fatalf("belief %d: %+v is read", doubt, read)
		}
		if read != nil {
			m.open = append(m.open, read)
		}
		return
	}
	var turn *wanted // the one whose turn it is
	for n < most && len(m.ring) > 0 {
		if q := m.queues[fmt.Sprint("client ", m.ring[0])]; len(q) > 0 {
			turn = q[0]
			break
		}
		m.ring = m.ring[1:]
	}
	if read == nil {
		if turn != nil && bytes == 0 {
			m.t.Fatal("an urgent request waits, and nothing is read")
		}
		for _, l := range []journal.Lane{journal.Ahead, journal.Walk, journal.Move} {
			if bulk == 0 && len(m.queues[fmt.Sprint("lane ", l)]) > 0 {
				m.t.Fatalf("lane %d waits, and nothing is read", l)
			}
		}
		return
	}
	if read.Lane == journal.Urgent {
		if turn == nil || !m.serves(read, turn) {
			m.t.Fatalf("it is not its turn: %+v", read)
		}
		if n >= most || bytes+read.To-read.From > 256<<10 {
			m.t.Fatalf("%d urgent reads of %d bytes are under way, and %d more bytes are read", n, bytes, read.To-read.From)
		}
		m.ring = append(m.ring[1:], m.ring[0])
	} else {
		if bulk > 0 {
			m.t.Fatal("two bulk reads")
		}
		if q := m.queues[fmt.Sprint("lane ", read.Lane)]; len(q) == 0 || !m.serves(read, q[0]) {
			m.t.Fatalf("%+v does not serve the first of its lane", read)
		}
		if load.Compaction && read.Lane != journal.Move && len(m.queues["lane 3"]) > 0 {
			m.t.Fatalf("commits wait for compaction, and lane %d is read", read.Lane)
		}
	}
	m.sane(read)
	for _, r := range read.Requests {
		m.dequeue(r)
	}
	m.open = append(m.open, read)
}

// serves reports whether a read is for the queue that r is the first of: for r, or for one that is tried again, which
// may stand where it stood.
func (m *model) serves(read *moving, r *wanted) bool {
	return slices.ContainsFunc(read.Requests, func(o *wanted) bool { return o == r || m.tries[o] > 0 && key(o) == key(r) })
}

// sane checks the range of a read.
func (m *model) sane(read *moving) {
	if n := read.To - read.From; n > 128<<10 || n <= 0 || read.Lane == journal.Urgent && n > 64<<10 && len(read.Requests) > 1 {
		m.t.Fatalf("%d bytes for %d requests", n, len(read.Requests))
	}
	end := read.From
	for i, r := range read.Requests {
		switch {
		case r.Place.Segment != read.File || r.Lane != read.Lane || !m.readable(r):
			m.t.Fatalf("%+v is not for %+v", *read, *r)
		case r.From-end > 32<<10 || i > 0 && r.From < read.Requests[i-1].From:
			m.t.Fatalf("a gap, or a wrong order: %+v", *read)
		case read.From > max(r.From, m.done[r]):
			m.t.Fatalf("%+v leaves out what %+v needs from %d on", *read, *r, m.done[r])
		case len(read.Requests) > 1 && (m.tries[r] > 0 || r.From < read.From || r.To > read.To):
			m.t.Fatalf("%+v must not share %+v", *r, *read)
		}
		end = max(end, r.To)
	}
}

func (m *model) end() {
	if len(m.open) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.open)-1).Draw(m.t, "which")
	read := m.open[i]
	m.open = slices.Delete(m.open, i, i+1)
	late := read.state == hung
	if m.e.Returned(read) == late {
		m.t.Fatal("a read counts that was given up, or one does not that was not")
	}
	if late {
		return
	}
	if read.Probe {
		bad := rapid.Bool().Draw(m.t, "bad")
		o := Sound
		if bad {
			o = Failed
		}
		before := len(m.suspects)
		ends := m.e.Ended(read, []Outcome{o}, m.now)
		if !bad && len(ends) != before {
			m.t.Fatalf("%d of %d end after a probe", len(ends), before)
		}
		m.ends(ends, func(*wanted) error {
			if bad {
				return journal.ErrHangs
			}
			return journal.ErrUnreadable
		})
		if bad {
			m.gaveUp()
		}
		return
	}
	found := make([]Outcome, len(read.Requests))
	for i := range found {
		found[i] = rapid.SampledFrom([]Outcome{Sound, Sound, Sound, Gone, Misfit, Failed, Failed, Unopened}).Draw(m.t, "outcome")
	}
	rests := m.e.disk.rests(m.now)
	ends := m.e.Ended(read, found, m.now)
	want := map[*wanted]error{}
	for i, r := range read.Requests {
		more := found[i] == Sound && read.To < r.To
		if found[i] != Sound && found[i] != Gone && !rests {
			m.tries[r]++
			m.done[r] = 0
		}
		switch {
		case found[i] == Gone:
			want[r] = journal.ErrMoved
		case found[i] == Sound && !more:
			want[r] = nil
		case rests:
			want[r] = journal.ErrHangs
		case more:
			m.done[r] = read.To
			m.queues[key(r)] = slices.Insert(m.queues[key(r)], 0, r)
			if r.Lane == journal.Urgent && !slices.Contains(m.ring, r.Turn) {
				m.ring = append(m.ring, r.Turn)
			}
		case m.tries[r] < 3:
			m.later = append(m.later, r)
		case found[i] == Unopened:
			want[r] = journal.ErrHangs
		case found[i] == Failed && m.e.disk.belief != trusted:
			m.suspects[r] = true
		default:
			want[r] = journal.ErrUnreadable
		}
	}
	if len(want) != len(ends) {
		m.t.Fatalf("%d end, should be %d", len(ends), len(want))
	}
	m.ends(ends, func(r *wanted) error {
		err, ok := want[r]
		if !ok {
			m.t.Fatalf("request %d has ended", r.Of)
		}
		return err
	})
}

func (m *model) pass() {
	m.now = m.now.Add(time.Duration(rapid.SampledFrom([]int{1, 15, 120, 1100, 11000}).Draw(m.t, "ms")) * time.Millisecond)
	var hangs []*moving
	for _, read := range m.open {
		if read.state == due && m.now.Sub(read.began) >= 10*time.Second {
			hangs = append(hangs, read)
		}
	}
	ends := m.e.Tick(m.now)
	m.ends(ends, func(*wanted) error { return journal.ErrHangs })
	if len(hangs) > 0 {
		m.gaveUp()
	}
	for _, read := range hangs {
		for _, r := range read.Requests {
			if !m.told[r] {
				m.t.Fatal("a read hangs, and a request of it has not ended")
			}
		}
	}
}

// Whatever comes in whatever order: bounds, turns, and each request ends once, with the right error.
func TestTheOrderAndTheBoundsOfReadsAreThoseOfAModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{
			t: rt, now: time.Unix(0, 0), queues: map[string][]*wanted{}, suspects: map[*wanted]bool{},
			tries: map[*wanted]int{}, told: map[*wanted]bool{},
			done:    map[*wanted]int64{},
			written: journal.Place{Segment: 3, Offset: 20000},
		}
		m.e.Written(m.written)
		steps := []func(){m.add, m.read, m.read, m.read, m.end, m.end, m.write, m.pass}
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			steps[rapid.IntRange(0, len(steps)-1).Draw(rt, "step")]()
		}
		// Then the disk gives everything, and everything has an end.
		m.written.Segment++
		m.e.Written(m.written)
		m.held = nil
		for range 10000 {
			if read := m.e.Next(m.now, Load{}); read != nil {
				m.open = append(m.open, read)
				continue
			}
			if len(m.open) == 0 {
				if at := m.e.Wake(); !at.IsZero() {
					m.now = at
					m.note(m.e.Tick(m.now))
					continue
				}
				break
			}
			read := m.open[0]
			m.open = m.open[1:]
			if m.e.Returned(read) {
				m.note(m.e.Ended(read, make([]Outcome, max(1, len(read.Requests))), m.now))
			}
		}
		if len(m.told) != m.n {
			rt.Fatalf("%d of %d requests have ended", len(m.told), m.n)
		}
	})
}

func (m *model) note(ends []End[int]) {
	for _, x := range ends {
		if m.told[x.Request] {
			m.t.Fatalf("request %d ends twice", x.Of)
		}
		m.told[x.Request] = true
	}
}

func scattered(lane journal.Lane, client uint64, n int) (rs []*wanted) {
	for i := range n {
		from := int64(i) << 20
		rs = append(rs, &wanted{Place: journal.Place{Segment: 1, Offset: uint32(from / 8)}, From: from, To: from + 1000, Lane: lane, Turn: client})
	}
	return rs
}

func TestTheBulkLaneIsSharedByWeights(t *testing.T) {
	t.Parallel()
	var e Elevator[int]
	e.Written(journal.Place{Segment: 2})
	now := time.Unix(0, 0)
	for _, l := range []journal.Lane{journal.Ahead, journal.Walk, journal.Move} {
		e.Add(scattered(l, 0, 100), now)
	}
	var count [4]int
	for range 70 {
		read := e.Next(now, Load{})
		if e.Next(now, Load{}) != nil {
			t.Fatal("two at a time")
		}
		count[read.Lane]++
		e.Returned(read)
		e.Ended(read, make([]Outcome, len(read.Requests)), now)
	}
	if count != [4]int{0, 40, 20, 10} {
		t.Errorf("reads by lane: %v", count)
	}
}

func TestNoMoreUrgentReadsAreUnderWayThanTheDiskBears(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		length int64
		load   Load
		most   int
	}{
		"small": {1000, Load{}, 8}, "beside commits": {1000, Load{Commits: true}, 2}, "large": {100 << 10, Load{}, 2},
	} {
		var e Elevator[int]
		e.Written(journal.Place{Segment: 2})
		now := time.Unix(0, 0)
		rs := scattered(journal.Urgent, 1, 20)
		for i, r := range rs {
			r.To, r.Turn = r.From+c.length, uint64(i)
		}
		e.Add(rs, now)
		n := 0
		for e.Next(now, c.load) != nil {
			n++
		}
		if n != c.most {
			t.Errorf("%s: %d reads at a time", what, n)
		}
	}
}

// A client with a thousand jobs does not make one wait that has one.
func TestASingleReserveDoesNotStandBehindABatch(t *testing.T) {
	t.Parallel()
	var e Elevator[int]
	e.Written(journal.Place{Segment: 2})
	now := time.Unix(0, 0)
	e.Add(scattered(journal.Urgent, 1, 1000), now)
	one := scattered(journal.Urgent, 2, 2)[1:]
	e.Add(one, now)
	for range 2 {
		if read := e.Next(now, Load{}); slices.Contains(read.Requests, one[0]) {
			return
		}
	}
	t.Error("it is not among the first two reads")
}

// One bad place takes three reads, a probe, and nobody else with it.
func TestOnlyWhatCannotBeReadAloneIsUnreadable(t *testing.T) {
	t.Parallel()
	var e Elevator[int]
	e.Written(journal.Place{Segment: 2})
	now := time.Unix(0, 0)
	good := &wanted{Place: journal.Place{Segment: 1, Offset: 10}, From: 80, To: 1080}
	bad := &wanted{Place: journal.Place{Segment: 1, Offset: 135}, From: 1080, To: 2080}
	e.Add([]*wanted{good, bad}, now)
	errs := map[*wanted]error{}
	reads := 0
	for len(errs) < 2 {
		read := e.Next(now, Load{})
		if read == nil {
			now = e.Wake()
			continue
		}
		reads++
		e.Returned(read)
		found := make([]Outcome, max(1, len(read.Requests)))
		if slices.Contains(read.Requests, bad) { // the system gives nothing of such a read
			for i := range found {
				found[i] = Failed
			}
		}
		for _, x := range e.Ended(read, found, now) {
			errs[x.Request] = x.Err
		}
	}
	if errs[good] != nil || !errors.Is(errs[bad], journal.ErrUnreadable) || now.Sub(time.Unix(0, 0)) < 110*time.Millisecond {
		t.Errorf("%v and %v after %d reads, %v", errs[good], errs[bad], reads, now.Sub(time.Unix(0, 0)))
	}
}

func TestNothingIsReadWhileEightReadsHang(t *testing.T) {
	t.Parallel()
	var e Elevator[int]
	e.Written(journal.Place{Segment: 2})
	now := time.Unix(0, 0)
	var hanging []*moving
	for range 8 {
		if ends := e.Add(scattered(journal.Urgent, 1, 1), now); len(ends) > 0 {
			t.Fatal("refused", len(hanging))
		}
		hanging = append(hanging, e.Next(now, Load{}))
		now = now.Add(patience)
		if ends := e.Tick(now); len(ends) != 1 || !errors.Is(ends[0].Err, journal.ErrHangs) {
			t.Fatalf("%+v", ends)
		}
		if len(e.Add(scattered(journal.Urgent, 1, 1), now)) == 0 {
			t.Fatal("it is tried within a second")
		}
		now = now.Add(rest)
	}
	if len(e.Add(scattered(journal.Urgent, 1, 1), now)) == 0 {
		t.Error("eight reads hang, and there is a ninth")
	}
	if e.Busy() || e.Returned(hanging[0]) {
		t.Error("reads that hang count")
	}
	if len(e.Add(scattered(journal.Urgent, 1, 1), now)) > 0 || e.Next(now, Load{}) == nil {
		t.Error("one has returned, and nothing is read")
	}
}
