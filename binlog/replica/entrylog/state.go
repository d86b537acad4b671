package entrylog

import (
	"fmt"
	"slices"
	"sort"

	"go.etcd.io/raft/v3/raftpb"
)

// EntryID names an entry. Of two entries with the same index and term the data is
// the same on all nodes.
type EntryID struct{ Index, Term uint64 }

func (id EntryID) String() string { return fmt.Sprintf("entry %d of term %d", id.Index, id.Term) }

func idOf(e *raftpb.Entry) EntryID { return EntryID{e.GetIndex(), e.GetTerm()} }

// hardState is raft's, in plain values.
type hardState struct{ term, vote, commit uint64 }

func hardOf(h *raftpb.HardState) hardState {
	return hardState{h.GetTerm(), h.GetVote(), h.GetCommit()}
}

// state is what a log says, without its entries.
type state struct {
	base EntryID // the log begins behind it
	last EntryID
	hard hardState
}

// wrong tells what is impossible between two frames, or "".
func (s *state) wrong() string {
	switch {
	case s.base.Index > s.last.Index || s.base.Term > s.last.Term:
		return "the last " + s.last.String() + " is before the first, behind " + s.base.String()
	case s.hard.commit > s.last.Index:
		return fmt.Sprintf("entries up to %d are committed, but the last is %d", s.hard.commit, s.last.Index)
	case s.hard.commit < s.base.Index:
		return fmt.Sprintf("entries up to %d are committed, but the log begins behind %d", s.hard.commit, s.base.Index)
	case s.hard.term < s.last.Term:
		return fmt.Sprintf("the term is %d, but there is an entry of term %d", s.hard.term, s.last.Term)
	}
	return ""
}

// setHard changes the hard state, or tells why that cannot be.
func (s *state) setHard(h hardState) (wrong string) {
	old := s.hard
	switch {
	case h.term < old.term:
		return fmt.Sprintf("the term falls from %d to %d", old.term, h.term)
	case h.term == old.term && old.vote != 0 && h.vote != old.vote:
		return fmt.Sprintf("two votes in term %d: %x and %x", h.term, old.vote, h.vote)
	case h.commit < old.commit:
		return fmt.Sprintf("the commit index falls from %d to %d", old.commit, h.commit)
	}
	s.hard = h
	return ""
}

// follows tells why an entry may not be written when the entry before it has that
// term, or "".
func (s *state) follows(id EntryID, before uint64) (wrong string) {
	switch {
	case id.Index <= s.hard.commit:
		return fmt.Sprintf("%v supersedes one that is committed, as all up to %d", id, s.hard.commit)
	case id.Term == 0 || id.Term < before:
		return fmt.Sprintf("%v follows an entry of term %d", id, before)
	}
	return ""
}

// begin is the state of a log that begins behind id. The entries behind it stay
// if keep is set. The commit index is raised to what a snapshot holds, and the term
// so that no entry is newer; a higher term has no vote yet.
func (s state) begin(id EntryID, keep bool) state {
	s.base = id
	if !keep {
		s.last = id
	}
	s.hard.commit = max(s.hard.commit, id.Index)
	if s.hard.term < id.Term {
		s.hard.term, s.hard.vote = id.Term, 0
	}
	return s
}

// table tells where entries are. Its entries are contiguous; positions grow with
// indexes, because an entry is superseded with all behind it.
type table struct {
	low  uint64 // index of the first, also if there is none
	pos  []uint64
	runs []EntryID // the first entry of each term
}

func (t *table) next() uint64 { return t.low + uint64(len(t.pos)) }

// add appends an entry at the position. An entry that is there already is
// superseded, with all behind it.
func (t *table) add(id EntryID, pos uint64) {
	t.cut(id.Index)
	if len(t.runs) == 0 || t.runs[len(t.runs)-1].Term != id.Term {
		t.runs = append(t.runs, id)
	}
	t.pos = append(t.pos, pos)
}

// cut removes the entries from index on. Below low it makes an empty table that
// begins there.
func (t *table) cut(index uint64) {
	if index >= t.next() {
		return
	}
	if index <= t.low {
		*t = table{low: index, pos: t.pos[:0], runs: t.runs[:0]}
		return
	}
	t.pos = t.pos[:index-t.low]
	n := sort.Search(len(t.runs), func(i int) bool { return t.runs[i].Index >= index })
	t.runs = t.runs[:n]
}

// removeBefore removes the entries before index, which is at most next.
func (t *table) removeBefore(index uint64) {
	if index <= t.low {
		return
	}
	t.pos = slices.Clone(t.pos[index-t.low:])
	n := sort.Search(len(t.runs), func(i int) bool { return t.runs[i].Index > index })
	if n > 0 {
		t.runs = slices.Delete(t.runs, 0, n-1)
		t.runs[0].Index = max(t.runs[0].Index, index)
	}
	if len(t.pos) == 0 {
		t.runs = t.runs[:0]
	}
	t.low = index
}

// reset makes an empty table that begins at index.
func (t *table) reset(index uint64) { *t = table{low: index} }

func (t *table) has(index uint64) bool { return index >= t.low && index < t.next() }

// term is that of an entry that is there.
func (t *table) term(index uint64) uint64 {
	n := sort.Search(len(t.runs), func(i int) bool { return t.runs[i].Index > index })
	return t.runs[n-1].Term
}
