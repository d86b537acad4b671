package entrylog

import (
	"fmt"
	"sort"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

var _ raft.Storage = (*Log)(nil)

// InitialState implements raft.Storage: the hard state, and the members as of
// Options.Snapshot.
func (l *Log) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	l.mu.RLock()
	h := l.state.hard
	l.mu.RUnlock()
	return &raftpb.HardState{Term: &h.term, Vote: &h.vote, Commit: &h.commit}, proto.Clone(l.conf).(*raftpb.ConfState), nil
}

// FirstIndex implements raft.Storage.
func (l *Log) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.state.base.Index + 1, nil
}

// LastIndex implements raft.Storage.
func (l *Log) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.state.last.Index, nil
}

// Term implements raft.Storage.
func (l *Log) Term(index uint64) (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch {
	case index < l.state.base.Index:
		return 0, raft.ErrCompacted
	case index == l.state.base.Index:
		return l.state.base.Term, nil
	case index > l.state.last.Index:
		return 0, raft.ErrUnavailable
	}
	return l.table.term(index), nil
}

// Snapshot implements raft.Storage by Options.OfferSnapshot.
func (l *Log) Snapshot() (*raftpb.Snapshot, error) {
	if l.opts.OfferSnapshot == nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return l.opts.OfferSnapshot()
}

// Entries implements raft.Storage: entries from lo to before hi, as many as maxSize
// bytes hold, as raft counts them, and at least one. Entries that are not in memory
// are read from the disk, with their checksums: the error of damage, and of what
// cannot be read, is a *DamageError, and ends the log. So the writer hears of it as
// well, whatever raft makes of the error. The caller must not change the entries.
func (l *Log) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	r := run{log: l, next: lo, hi: hi, left: maxSize}
	for {
		more, err := r.gather()
		if err != nil {
			return nil, err
		}
		if !more {
			return r.entries, nil
		}
	}
}

// eachBytes is how much of the log Each reads at a time.
const eachBytes = 4 << 20

// Each calls f with the entries behind the index after, up to last. It ends with f's error,
// or with one of Entries.
func (l *Log) Each(after, last uint64, f func(*raftpb.Entry) error) error {
	for after < last {
		es, err := l.Entries(after+1, last+1, eachBytes)
		if err != nil {
			return fmt.Errorf("read entries from %d on: %w", after+1, err)
		}
		for _, e := range es {
			if err := f(e); err != nil {
				return err
			}
			after = e.GetIndex()
		}
	}
	return nil
}

// run is a part of the log that is being read.
type run struct {
	log        *Log
	next       uint64 // index of the next entry
	hi         uint64
	left       uint64 // bytes that may follow, as raft counts
	superseded uint64 // as the log's when reading began
	entries    []*raftpb.Entry
	pos        []uint64 // of the entries of one segment that are read next
}

// maxWindow is how many bytes are read at a time, unless an entry has more; and
// minWindow how many even if fewer are asked for.
const (
	maxWindow = 256 << 10
	minWindow = 4 << 10
)

// gather appends entries that are in memory, or some that are in one segment. It
// reports whether more may follow.
func (r *run) gather() (more bool, err error) {
	l := r.log
	l.mu.RLock()
	if on, err := r.check(); !on || err != nil {
		l.mu.RUnlock()
		return false, err
	}
	if len(r.entries) == 0 {
		r.superseded = l.superseded
	}
	from := l.cache.first()
	if r.next >= from {
		defer l.mu.RUnlock()
		for r.next < r.hi && r.take(l.cache.get(r.next)) {
		}
		return false, nil
	}
	s := l.segmentOf(l.table.pos[r.next-l.table.low])
	end := s.pos + uint64(s.size)
	if i := s.index - l.segments[0].index + 1; int(i) < len(l.segments) {
		end = l.segments[i].pos
	}
	window := min(max(r.left, minWindow), maxWindow)
	r.pos = r.pos[:0]
	for i := r.next; i < min(r.hi, from); i++ {
		pos := l.table.pos[i-l.table.low]
		if pos >= end || len(r.pos) > 0 && pos-r.pos[0] >= window {
			break
		}
		r.pos = append(r.pos, pos)
	}
	l.mu.RUnlock()
	more, err = r.read(s, int64(window))
	if err == nil {
		return more && r.next < r.hi, nil
	}
	l.mu.RLock()
	on, gone := r.check()
	superseded := r.superseded != l.superseded
	l.mu.RUnlock()
	switch {
	case !on || gone != nil:
		return false, gone
	case superseded:
		return true, nil
	}
	return false, l.fail("read", err)
}

// check reports whether what is wanted next is there, and of the same history as what
// was read. With mu held. While nothing was read, any history will do.
func (r *run) check() (on bool, err error) {
	l := r.log
	if len(r.entries) > 0 {
		return !l.closed && r.superseded == l.superseded && r.next > l.state.base.Index, nil
	}
	switch {
	case l.closed:
		return false, ErrClosed
	case r.next <= l.state.base.Index:
		return false, raft.ErrCompacted
	case r.hi > l.state.last.Index+1:
		return false, raft.ErrUnavailable
	}
	return r.next < r.hi, nil
}

// take appends an entry if it fits.
func (r *run) take(e *raftpb.Entry) bool {
	size := uint64(proto.Size(e))
	if size > r.left && len(r.entries) > 0 {
		r.left = 0
		return false
	}
	r.left -= min(size, r.left)
	r.entries = append(r.entries, e)
	r.next++
	return true
}

// read reads the entries at r.pos from their segment.
func (r *run) read(s *segment, window int64) (more bool, err error) {
	start := int64(r.pos[0] - s.pos)
	b := make([]byte, min(window, s.size-start))
	if n, err := s.file.ReadAt(b, start); n < len(b) {
		return false, &DamageError{File: s.name, Offset: start + int64(n), What: "it cannot be read", Err: err}
	}
	for i, pos := range r.pos {
		off := int64(pos - s.pos)
		part := b[min(off-start, int64(len(b))):]
		if i > 0 && (len(part) < itemSize || itemLen(part) > int64(len(part))) {
			return true, nil // it starts the next window
		}
		item, err := r.item(s, off, part)
		if err != nil {
			return false, err
		}
		if !r.take(decodeEntry(item)) {
			return false, nil
		}
	}
	return true, nil
}

// item returns the whole of the item at an offset, of which b is the start, once it
// is known to be sound and the one that is wanted.
func (r *run) item(s *segment, off int64, b []byte) ([]byte, error) {
	wrong := &DamageError{File: s.name, Offset: off, What: "an entry with a wrong checksum"}
	n := itemLen(b)
	if n < 0 || n > s.size-off {
		return nil, wrong
	}
	if n > int64(len(b)) {
		b = make([]byte, n)
		if got, err := s.file.ReadAt(b, off); got < len(b) {
			return nil, &DamageError{File: s.name, Offset: off + int64(got), What: "it cannot be read", Err: err}
		}
	}
	b = b[:n]
	if sum(r.log.salt, b[4:]) != le.Uint32(b) || !possibleItem(b) || b[4] != itemEntry {
		return nil, wrong
	}
	if index := le.Uint64(b[8:]); index != r.next {
		wrong.What = fmt.Sprintf("entry %d in the place of entry %d", index, r.next)
		return nil, wrong
	}
	return b, nil
}

// segmentOf is the segment that holds a position. With mu held.
func (l *Log) segmentOf(pos uint64) *segment {
	return l.segments[sort.Search(len(l.segments), func(i int) bool { return l.segments[i].pos > pos })-1]
}
