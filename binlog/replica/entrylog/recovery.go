package entrylog

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// recover reads the log, makes sure that all that was read is on disk, and leaves the
// files open. Nothing is changed before everything was read and found consistent.
func (l *Log) recover() error {
	if err := l.openFiles(); err != nil {
		return err
	}
	r := reader{log: l}
	segs, rest, err := r.segments()
	if err != nil {
		return err
	}
	if len(segs) == 0 && !l.opts.New {
		return ErrNoLog
	}
	for _, s := range slices.Backward(rest) {
		l.segments = l.segments[:len(l.segments)-1]
		if err := errors.Join(s.file.Close(), l.fs.Remove(s.name), vfs.SyncDir(l.fs, l.dir)); err != nil {
			return fmt.Errorf("remove a file that was never begun: %w", err)
		}
	}
	if len(segs) == 0 {
		return l.make()
	}
	l.current, l.chain, l.marked = segs[len(segs)-1], r.chain, r.marked
	l.state, l.table = r.state, r.table
	l.end = l.current.end()
	l.recovered = Recovery{
		Entries: int64(len(l.table.pos)), Bytes: int64(l.end - segs[0].pos), Changes: r.changes, Cut: r.cut,
	}
	return r.makeDurable()
}

func idOfSnapshot(m *raftpb.SnapshotMetadata) EntryID { return EntryID{m.GetIndex(), m.GetTerm()} }

// openFiles opens the files of segments, by index.
func (l *Log) openFiles() error {
	list, err := l.fs.List(l.dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		index := fileIndex(e.Name)
		if index == 0 || e.Dir {
			continue
		}
		file, err := l.fs.Open(l.path(index))
		if err != nil {
			return err
		}
		l.segments = append(l.segments, &segment{header: header{index: index}, name: l.path(index), file: file, size: e.Size})
	}
	slices.SortFunc(l.segments, func(a, b *segment) int { return cmp.Compare(a.index, b.index) })
	return nil
}

// segments reads all segments, and returns them, and the files behind them that were made and
// never begun. With damage it returns those before it, and the one that it is in if that has a
// sound header.
func (r *reader) segments() (segs, rest []*segment, err error) {
	l := r.log
	segs, rest, err = l.begun()
	if errors.Is(err, ErrVersion) {
		return nil, nil, err
	}
	for i, s := range segs {
		var next *segment
		if i+1 < len(segs) {
			next = segs[i+1]
		}
		if err := r.read(s, next); err != nil {
			return segs[:i+1], nil, err
		}
	}
	if err != nil || len(segs) == 0 {
		return segs, rest, err
	}
	if wrong := r.contradiction(idOfSnapshot(l.opts.Snapshot)); wrong != "" {
		return segs, rest, &DamageError{File: segs[0].name, What: wrong}
	}
	return segs, rest, nil
}

// begun returns the segments, with their headers, and the files behind them that were
// made and never begun. With damage it returns those before it.
func (l *Log) begun() (segs, rest []*segment, err error) {
	b := make([]byte, headerSize)
	for i, s := range l.segments {
		n, err := s.file.ReadAt(b, 0)
		if err != nil && err != io.EOF {
			return segs, nil, &DamageError{File: s.name, What: "it cannot be read", Err: err}
		}
		index := s.index
		switch wrong := s.decode(b[:n]); {
		case wrong == laterVersion:
			return segs, nil, fmt.Errorf("%s: %w", s.name, ErrVersion)
		case wrong != "" && !record.Zeros(s.file, headerSize, s.size):
			return segs, nil, &DamageError{File: s.name, What: wrong + ", and something follows"}
		case wrong != "":
			// The sync of a header comes before all that the file holds.
			rest = append(rest, s)
			continue
		case len(rest) > 0:
			return segs, nil, &DamageError{File: rest[0].name, What: "no sound header, and later segments follow"}
		case s.index != index:
			return segs, nil, &DamageError{File: s.name, What: fmt.Sprintf("the header of segment %d", s.index)}
		case i > 0 && l.segments[i-1].index+1 != index:
			return segs, nil, &DamageError{File: l.path(index - 1), What: "the segment is missing"}
		}
		segs = append(segs, s)
	}
	return segs, rest, nil
}

// make makes a log that begins behind the snapshot.
func (l *Log) make() error {
	s, err := l.create(1, l.opts.SegmentSize)
	if err != nil {
		return l.refuse("make the first segment", err)
	}
	l.segments = []*segment{s}
	l.state = state{}.begin(idOfSnapshot(l.opts.Snapshot), false)
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails
	l.seed = binary.LittleEndian.Uint64(seed[:])
	l.salt = newSalt(l.seed)
	s.header = header{index: 1, seed: l.seed, state: l.state}
	if err := s.begin(); err != nil {
		return l.refuse("begin the first segment", err)
	}
	if err := s.file.Sync(); err != nil {
		return l.fail("sync", err)
	}
	l.current, l.end = s, s.end()
	l.table.low = l.state.base.Index + 1
	return nil
}

// reader reads a log from its first segment to its end.
type reader struct {
	log    *Log
	state  state
	table  table
	chain  uint32
	marked bool  // the last frame is a mark
	last   int64 // in the last segment: offset of the last frame, 0 if there is none
	cut    *Cut
	buf    []byte // the segment

	changes []uint64 // indexes of entries that are no normal ones, but for those that were superseded
}

// read reads a segment. Next is the one behind it, nil for the last one.
func (r *reader) read(s, next *segment) error {
	l := r.log
	if r.buf == nil {
		l.seed, l.salt = s.seed, newSalt(s.seed)
		r.state, r.chain = s.state, s.chain
		r.table.low = s.state.last.Index + 1
	} else if s.seed != l.seed || s.chain != r.chain || s.state != r.state {
		return &DamageError{File: s.name, What: "a header that does not continue the segment before"}
	}
	limit := s.size
	if next != nil {
		limit = int64(next.pos - s.pos)
		if next.pos < s.pos+headerSize || limit > s.size {
			return &DamageError{File: next.name, What: "a header that does not continue the segment before"}
		}
	}
	if int64(cap(r.buf)) < limit {
		r.buf = make([]byte, max(limit, l.opts.SegmentSize))
	}
	b := r.buf[:limit]
	r.buf = b
	if n, err := s.file.ReadAt(b, 0); n < len(b) {
		return &DamageError{File: s.name, Offset: int64(n), What: "it cannot be read", Err: err}
	}
	r.last = 0
	s.used = headerSize
	for s.used < limit {
		n, wrong, torn := r.frame(b[s.used:], s.pos+uint64(s.used))
		if wrong == "" {
			r.last = s.used
			s.used += n
			continue
		}
		if next == nil && torn {
			if zero(b[s.used:]) {
				return nil
			}
			if r.soundBehind(s) == 0 {
				r.cut = &Cut{s.name, s.used}
				return nil
			}
		}
		return &DamageError{File: s.name, Offset: s.used, What: wrong, Sound: r.soundBehind(s)}
	}
	return nil
}

func zero(b []byte) bool {
	for len(b) >= 8 {
		if le.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// soundBehind counts the sound heads of frames behind the place where reading of the
// segment has stopped. Each was written after all before it was on disk.
func (r *reader) soundBehind(s *segment) (n int64) {
	var f frame
	for off := s.used + 8; off <= int64(len(r.buf))-frameSize; off += 8 {
		if f.decode(r.buf[off:], r.log.salt) && f.pos == s.pos+uint64(off) {
			n++
		}
	}
	return n
}

// frame reads the frame at the start of b, which has that position, and returns its
// length. If there is none it tells what is wrong, and whether a crash can have made
// it so.
func (r *reader) frame(b []byte, pos uint64) (n int64, wrong string, torn bool) {
	var f frame
	if !f.decode(b, r.log.salt) {
		return 0, "no sound head of a frame", true
	}
	switch {
	case f.pos != pos:
		return 0, "a frame that belongs elsewhere", false
	case f.chain != r.chain:
		return 0, "a frame that does not continue the one before", false
	case f.size < frameSize || f.size > maxFrame || f.size%8 != 0 || int64(f.size) > int64(len(b)) ||
		le.Uint32(b[28:]) != 0:
		return 0, "a frame's head with impossible fields", false
	case !f.sound(b[frameSize:f.size], r.log.salt):
		return 0, "a frame with a wrong checksum", true
	}
	for off := int64(frameSize); off < int64(f.size); {
		item := b[off : off+itemLen(b[off:])]
		if wrong := r.item(item, pos+uint64(off)); wrong != "" {
			return 0, "a frame that cannot be: " + wrong, false
		}
		off += int64(len(item))
	}
	if wrong := r.state.wrong(); wrong != "" {
		return 0, "a frame that cannot be: " + wrong, false
	}
	r.chain = f.sum
	r.marked = f.items == 0
	return int64(f.size), "", false
}

// item does what a sound item says, or tells why that cannot be.
func (r *reader) item(b []byte, pos uint64) (wrong string) {
	if !possibleItem(b) {
		return "impossible fields"
	}
	x, y := le.Uint64(b[8:]), le.Uint64(b[16:])
	id := EntryID{x, y}
	st := &r.state
	switch b[4] {
	case itemEntry:
		if id.Index <= st.base.Index || id.Index > st.last.Index+1 {
			return fmt.Sprintf("%v behind %v", id, st.last)
		}
		if wrong := st.follows(id, r.termBefore(id.Index)); wrong != "" {
			return wrong
		}
		r.table.add(id, pos)
		st.last = id
		for n := len(r.changes); n > 0 && r.changes[n-1] >= id.Index; n-- {
			r.changes = r.changes[:n-1]
		}
		if raftpb.EntryType(b[5]) != raftpb.EntryNormal {
			r.changes = append(r.changes, id.Index)
		}
	case itemHard:
		return st.setHard(hardState{x, y, le.Uint64(b[24:])})
	case itemTrim:
		if id.Index <= st.base.Index || id.Index > st.last.Index ||
			id.Term < st.base.Term || r.table.has(id.Index) && r.table.term(id.Index) != id.Term {
			return fmt.Sprintf("the log begins behind %v, which it lacks", id)
		}
		*st = st.begin(id, true)
		r.table.removeBefore(id.Index + 1)
	case itemReset:
		if id.Index <= st.hard.commit {
			return fmt.Sprintf("the log is emptied for %v, but all up to %d is committed", id, st.hard.commit)
		}
		*st = st.begin(id, false)
		r.table.reset(id.Index + 1)
	}
	return ""
}

// termBefore is the term of the entry before index, or 0 if that entry was in a
// segment that is not there any more.
func (r *reader) termBefore(index uint64) uint64 {
	switch st := &r.state; {
	case index-1 == st.last.Index:
		return st.last.Term
	case index-1 == st.base.Index:
		return st.base.Term
	case r.table.has(index - 1):
		return r.table.term(index - 1)
	}
	return 0
}

// contradiction tells why the log, which was read to its end, cannot be what the node
// has written that has this snapshot.
func (r *reader) contradiction(snapshot EntryID) string {
	st := &r.state
	switch {
	case r.table.low > st.base.Index+1:
		return fmt.Sprintf("entries %d to %d are in no segment", st.base.Index+1, r.table.low-1)
	case snapshot.Index < st.base.Index:
		return fmt.Sprintf("the log begins behind %v, but the snapshot ends with %v", st.base, snapshot)
	case snapshot.Index <= st.hard.commit && snapshot != st.base &&
		(!r.table.has(snapshot.Index) || r.table.term(snapshot.Index) != snapshot.Term):
		return fmt.Sprintf("the snapshot ends with %v, but another entry is committed in its place", snapshot)
	}
	return ""
}

// makeDurable makes sure that what was read is on disk. If a sync has failed before, the
// system may believe so without cause, and would not sync it again: what was written
// last, which nothing calls synced, is written once more. All that was written before
// was synced before. What is torn becomes zero.
func (r *reader) makeDurable() error {
	s := r.log.current
	b := r.buf[r.last:]
	clear(b[s.used-r.last:])
	if r.cut == nil {
		b = b[:s.used-r.last]
	}
	if _, err := s.file.WriteAt(b, r.last); err != nil {
		return r.log.refuse("write the end of "+s.name+" again", err)
	}
	if err := errors.Join(s.file.Sync(), vfs.SyncDir(r.log.fs, r.log.dir)); err != nil {
		return r.log.fail("sync", err)
	}
	return nil
}

// beginAtSnapshot makes sure that no entry is missing between the snapshot and the log: see Install.
func (l *Log) beginAtSnapshot() error {
	id := idOfSnapshot(l.opts.Snapshot)
	switch {
	case !l.holds(id):
		l.recovered.Emptied = true
		if err := l.Install(id); err != nil {
			return err
		}
	case l.state.hard.commit < id.Index:
		h := l.state.hard
		hard := &raftpb.HardState{Term: &h.term, Vote: &h.vote, Commit: &id.Index}
		if err := l.Append(Update{HardState: hard}); err != nil {
			return err
		}
	}
	if err := l.Mark(); err != nil && !errors.Is(err, ErrNoSpace) {
		return err
	}
	if l.current.used > headerSize {
		l.prune()
	}
	return nil
}
