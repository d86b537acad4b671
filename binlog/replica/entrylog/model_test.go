package entrylog

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/vfs/faultfs"
)

const testDir = "log"

// model is what a log must say, in the simplest form.
type model struct {
	base    EntryID
	entries []*raftpb.Entry
	hard    hardState
}

func (m model) clone() model {
	m.entries = slices.Clone(m.entries)
	return m
}

func (m *model) last() EntryID {
	if n := len(m.entries); n > 0 {
		return idOf(m.entries[n-1])
	}
	return m.base
}

// at is the entry with that index, which is there.
func (m *model) at(index uint64) *raftpb.Entry { return m.entries[index-m.base.Index-1] }

func (m *model) term(index uint64) uint64 {
	if index == m.base.Index {
		return m.base.Term
	}
	return m.at(index).GetTerm()
}

func (m *model) update(u Update) {
	for _, e := range u.Entries {
		m.entries = append(m.entries[:e.GetIndex()-m.base.Index-1:e.GetIndex()-m.base.Index-1], e)
	}
	if h := u.HardState; h != nil {
		m.hard = hardState{h.GetTerm(), h.GetVote(), max(m.hard.commit, h.GetCommit())}
	}
}

// begin is what a snapshot does to a log, in the words of the specification. With
// trim the entries up to it go; a start of the log leaves them.
func (m *model) begin(id EntryID, trim bool) {
	if id.Index < m.base.Index || id == m.base {
		return
	}
	switch {
	case id.Index > m.last().Index || m.term(id.Index) != id.Term:
		m.base, m.entries = id, nil
	case trim:
		m.entries = slices.Clone(m.entries[id.Index-m.base.Index:])
		m.base = id
	}
	m.hard.commit = max(m.hard.commit, id.Index)
	if m.hard.term < id.Term {
		m.hard.term, m.hard.vote = id.Term, 0
	}
}

// diff tells how a log differs from the model, or nil.
func (m *model) diff(l *Log) error {
	hs, _, err := l.InitialState()
	if err != nil || hardOf(hs) != m.hard {
		return fmt.Errorf("hard state %+v, %v, want %+v", hs, err, m.hard)
	}
	first, _ := l.FirstIndex()
	last, _ := l.LastIndex()
	if first != m.base.Index+1 || last != m.last().Index {
		return fmt.Errorf("entries %d to %d, want %d to %d", first, last, m.base.Index+1, m.last().Index)
	}
	if m.base.Index > 0 {
		if _, err := l.Term(m.base.Index - 1); !errors.Is(err, raft.ErrCompacted) {
			return fmt.Errorf("term of an entry before the base: %v", err)
		}
		if _, err := l.Entries(m.base.Index, m.base.Index+1, math.MaxUint64); !errors.Is(err, raft.ErrCompacted) {
			return fmt.Errorf("the entry at the base: %v", err)
		}
	}
	if _, err := l.Term(last + 1); !errors.Is(err, raft.ErrUnavailable) {
		return fmt.Errorf("term of an entry behind the last: %v", err)
	}
	if _, err := l.Entries(first, last+2, math.MaxUint64); !errors.Is(err, raft.ErrUnavailable) {
		return fmt.Errorf("an entry behind the last: %v", err)
	}
	for i := m.base.Index; i <= last; i++ {
		if term, err := l.Term(i); err != nil || term != m.term(i) {
			return fmt.Errorf("entry %d is of term %d, %v, want %d", i, term, err, m.term(i))
		}
	}
	if first > last {
		return nil
	}
	es, err := l.Entries(first, last+1, math.MaxUint64)
	if err != nil || len(es) != len(m.entries) {
		return fmt.Errorf("%d entries, %v, want %d", len(es), err, len(m.entries))
	}
	for i, e := range es {
		if err := same(e, m.entries[i]); err != nil {
			return err
		}
	}
	return nil
}

func same(got, want *raftpb.Entry) error {
	if idOf(got) != idOf(want) || got.GetType() != want.GetType() || !bytes.Equal(got.GetData(), want.GetData()) {
		return fmt.Errorf("%v with %.20q, want %v with %.20q", idOf(got), got.GetData(), idOf(want), want.GetData())
	}
	return nil
}

// entry makes an entry whose data is different for each.
func entry(index, term uint64, size int) *raftpb.Entry {
	data := make([]byte, size)
	copy(data, fmt.Sprintf("%d/%d ", index, term))
	for i := size / 2; i < size; i++ {
		data[i] = byte(i) + byte(index*31+term)
	}
	if size == 0 {
		data = nil
	}
	kind := raftpb.EntryType(index % 3)
	return &raftpb.Entry{Index: &index, Term: &term, Type: &kind, Data: data}
}

func entries(from, to, term uint64, size int) (es []*raftpb.Entry) {
	for i := from; i <= to; i++ {
		es = append(es, entry(i, term, size))
	}
	return es
}

func hard(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

// node is a log, the model of what is known to be on disk, and what may be there
// besides.
type node struct {
	fs   *faultfs.FS
	rng  *rand.Rand
	opts Options
	log  *Log

	done     model   // what was acknowledged
	maybe    []model // what an operation that did not return may have left
	snapshot EntryID // the durable pointer
	again    bool    // its installation found no space, and is to be repeated
}

func newNode(seed uint64, opts Options) *node {
	if opts.SegmentSize == 0 {
		opts.SegmentSize = MinSegmentSize
	}
	return &node{fs: faultfs.New(testDir), rng: rand.New(rand.NewPCG(seed, 1)), opts: opts}
}

// start opens the log and compares it with what it may say.
func (n *node) start(first bool) error {
	opts := n.opts
	opts.FS = n.fs
	opts.New = first
	opts.Snapshot = &raftpb.SnapshotMetadata{Index: &n.snapshot.Index, Term: &n.snapshot.Term}
	l, err := Open(testDir, opts)
	if err != nil {
		return err
	}
	n.log, n.again = l, false
	var all []error
	for _, m := range append([]model{n.done}, n.maybe...) {
		m = m.clone()
		m.begin(n.snapshot, false)
		err := m.diff(l)
		if err == nil {
			n.done, n.maybe = m, nil
			return nil
		}
		all = append(all, err)
	}
	l.Close()
	return fmt.Errorf("the log is none of %d that it may be: %w", len(all), errors.Join(all...))
}

// do runs an operation that leads to a state.
func (n *node) do(op func() error, then func(*model)) error {
	m := n.done.clone()
	then(&m)
	err := op()
	switch {
	case err == nil:
		n.done = m
	case errors.Is(err, ErrFailed):
		n.maybe = append(n.maybe, m)
	case errors.Is(err, ErrNoSpace):
	default:
		return fmt.Errorf("unexpected: %w", err)
	}
	return err
}

func (n *node) append(us ...Update) error {
	return n.do(func() error { return n.log.Append(us...) }, func(m *model) {
		for _, u := range us {
			m.update(u)
		}
	})
}

func (n *node) trim(id EntryID) error {
	n.snapshot = id
	return n.do(func() error { return n.log.Trim(id) }, func(m *model) { m.begin(id, true) })
}

func (n *node) install(id EntryID) error {
	n.snapshot = id
	err := n.do(func() error { return n.log.Install(id) }, func(m *model) { m.begin(id, true) })
	n.again = errors.Is(err, ErrNoSpace)
	return err
}

// randomUpdate is one that raft could want after the state of the model, which it
// changes.
func (n *node) randomUpdate(m *model) Update {
	var u Update
	r := n.rng
	h := m.hard
	if r.IntN(5) == 0 || h.term == 0 {
		h.term += 1 + r.Uint64N(3)
		h.vote = r.Uint64N(3)
	} else if h.vote == 0 && r.IntN(3) == 0 {
		h.vote = 1 + r.Uint64N(3)
	}
	from := m.last().Index + 1
	if r.IntN(6) == 0 && from > h.commit+1 {
		from = h.commit + 1 + r.Uint64N(from-h.commit-1)
	}
	count := r.Uint64N(4)
	if from <= m.last().Index {
		count++
	}
	term := m.term(from - 1)
	for i := range count {
		if term < h.term && (term == 0 || r.IntN(3) == 0) {
			term = max(1, term+r.Uint64N(h.term-term+1))
		}
		size := r.IntN(200)
		if r.IntN(20) == 0 {
			size = r.IntN(3 * MinSegmentSize)
		}
		u.Entries = append(u.Entries, entry(from+i, term, size))
	}
	last := m.last().Index
	if count > 0 {
		last = from + count - 1
	}
	if r.IntN(2) == 0 && last > h.commit {
		h.commit += r.Uint64N(last - h.commit + 1)
	}
	if h != m.hard {
		u.HardState = hard(h.term, h.vote, h.commit)
	}
	m.update(u)
	return u
}

// step does something. Its error, if any, is ErrFailed or ErrNoSpace.
func (n *node) step() error {
	if n.again {
		return n.install(n.snapshot)
	}
	switch r := n.rng; r.IntN(12) {
	case 0:
		return n.do(n.log.Mark, func(*model) {})
	case 1:
		if n.done.hard.commit > n.done.base.Index {
			i := n.done.base.Index + 1 + r.Uint64N(n.done.hard.commit-n.done.base.Index)
			return n.trim(EntryID{i, n.done.term(i)})
		}
	case 2:
		if r.IntN(3) == 0 {
			last := n.done.last()
			id := EntryID{last.Index + 1 + r.Uint64N(5), n.done.hard.term + r.Uint64N(2)}
			if r.IntN(3) == 0 && last.Index > n.done.hard.commit {
				id.Index = n.done.hard.commit + 1
			}
			if id.Term == 0 || id.Term < n.done.term(min(id.Index, last.Index)) {
				return nil
			}
			return n.install(id)
		}
	}
	m := n.done.clone()
	var us []Update
	for range 1 + n.rng.IntN(3) {
		us = append(us, n.randomUpdate(&m))
	}
	return n.append(us...)
}

// counted returns a number that counts calls of one kind, which the log's goroutine
// does not make.
func (n *node) counted(op string) *atomic.Int64 {
	count := new(atomic.Int64)
	n.fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == op {
			count.Add(1)
		}
		return faultfs.Fault{}
	})
	return count
}

// crash ends the process or the machine, and what is left of it.
func (n *node) crash(power bool) {
	fs := n.fs
	if power {
		n.fs = fs.PowerCut(n.rng)
	} else {
		n.fs = fs.Killed()
	}
	if n.log != nil {
		n.log.Close()
		n.log = nil
	}
}
