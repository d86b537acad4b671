package entrylog

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Update is what one MsgStorageAppend of raft wants on disk: entries, and the hard
// state after them. Either may be empty.
type Update struct {
	// Entries are contiguous. What the log holds from the first one's index on is
	// superseded. The log keeps the entries: nobody changes them or their data any more.
	Entries []*raftpb.Entry

	// HardState is nil or empty if it does not change. A commit index below the log's
	// is taken as the log's: an update may have waited while a snapshot has raised it.
	HardState *raftpb.HardState
}

// placed is an entry in the frame that is being made.
type placed struct {
	entry *raftpb.Entry
	off   int // in the frame
}

// draft is a frame that is being made, and what the log will say with it. The
// writer's.
type draft struct {
	buf     []byte // room for the head, and the items
	items   uint32
	content uint32
	state   state
	placed  []placed // contiguous: what is left of the frame's entries in the end
}

func (l *Log) newDraft() *draft {
	d := &l.draft
	clear(d.placed)
	d.buf, d.items, d.content = append(d.buf[:0], make([]byte, frameSize)...), 0, l.salt
	d.state, d.placed = l.state, d.placed[:0]
	return d
}

// Append writes updates in order, all in one write, and returns when they are on
// disk: then the responses to all of them may leave, in order. After a crash the log
// holds all of them or none. With an error nothing has changed: ErrNoSpace,
// ErrInvalid, ErrFailed or ErrClosed.
//
// The writer hands over all updates that wait, so that one sync serves them. An
// update without responses, which changes the commit index only, may wait for the
// next one that has some.
func (l *Log) Append(updates ...Update) error {
	if err := l.writable(); err != nil {
		return err
	}
	d := l.newDraft()
	for i := range updates {
		if err := l.add(d, &updates[i]); err != nil {
			return err
		}
	}
	if d.items == 0 {
		return nil
	}
	pos, err := l.write(d)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.publish(d)
	if len(d.placed) > 0 && d.placed[0].entry.GetIndex() < l.table.next() {
		l.superseded++
	}
	for _, p := range d.placed {
		l.table.add(idOf(p.entry), pos+uint64(p.off))
		l.cache.add(p.entry)
	}
	return nil
}

// add adds an update to a draft.
func (l *Log) add(d *draft, u *Update) error {
	for i, e := range u.Entries {
		id := idOf(e)
		if id.Index <= d.state.base.Index || id.Index > d.state.last.Index+1 || i > 0 && id.Index != d.state.last.Index+1 {
			return invalid("%v behind %v", id, d.state.last)
		}
		if wrong := d.state.follows(id, l.termIn(d, id.Index-1)); wrong != "" {
			return invalid("%s", wrong)
		}
		if len(d.placed) == 0 || id.Index < d.placed[0].entry.GetIndex() {
			d.placed = d.placed[:0]
		} else {
			d.placed = d.placed[:id.Index-d.placed[0].entry.GetIndex()]
		}
		d.placed = append(d.placed, placed{e, len(d.buf)})
		if int64(len(d.buf))+entrySize(int64(len(e.GetData()))) > maxFrame {
			return invalid("more than %d bytes at once", maxFrame)
		}
		d.buf = appendEntry(d.buf, l.salt, &d.content, e)
		d.items++
		d.state.last = id
	}
	if !raft.IsEmptyHardState(u.HardState) {
		h := hardOf(u.HardState)
		h.commit = max(h.commit, d.state.hard.commit)
		old := d.state.hard
		if wrong := d.state.setHard(h); wrong != "" {
			return invalid("%s", wrong)
		}
		if h != old {
			d.hard(l.salt)
		}
	}
	if wrong := d.state.wrong(); wrong != "" {
		return invalid("%s", wrong)
	}
	return nil
}

// hard adds the draft's hard state.
func (d *draft) hard(salt uint32) {
	h := d.state.hard
	d.buf = appendItem(d.buf, salt, &d.content, itemHard, h.term, h.vote, h.commit)
	d.items++
}

// termIn is the term of an entry, which is there, in the log as it will be with the
// draft, or of the base.
func (l *Log) termIn(d *draft, index uint64) uint64 {
	if index == d.state.last.Index {
		return d.state.last.Term
	}
	if n := len(d.placed); n > 0 && index >= d.placed[0].entry.GetIndex() {
		return d.placed[index-d.placed[0].entry.GetIndex()].entry.GetTerm()
	}
	if index == d.state.base.Index {
		return d.state.base.Term
	}
	return l.table.term(index)
}

// Trim drops the log up to an entry that it holds and that a durable snapshot
// includes. The files before it are removed in the background. An entry before the
// log's first changes nothing. Errors are those of Append.
//
// The caller promises that the snapshot, its directory and the pointer to it are on
// disk, and that raft needs no entry before: none that is committed and not applied.
func (l *Log) Trim(id EntryID) error {
	if err := l.writable(); err != nil {
		return err
	}
	if id.Index >= l.state.base.Index && !l.holds(id) {
		return invalid("the log does not hold %v", id)
	}
	return l.beginBehind(id)
}

// Install drops the log up to a snapshot that has come from the leader and is
// durable here, with the pointer to it. If the log lacks the snapshot's last entry it
// is emptied; otherwise the entries behind it stay. Errors are those of Append.
func (l *Log) Install(id EntryID) error {
	if err := l.writable(); err != nil {
		return err
	}
	return l.beginBehind(id)
}

// holds reports whether the log holds that very entry, or begins behind it.
func (l *Log) holds(id EntryID) bool {
	return id == l.state.base || l.table.has(id.Index) && l.table.term(id.Index) == id.Term
}

func (l *Log) beginBehind(id EntryID) error {
	if id == l.state.base || id.Index < l.state.base.Index {
		return nil
	}
	keep := l.holds(id)
	if !keep && id.Index <= l.state.hard.commit {
		return invalid("the snapshot ends with %v, but another entry is committed in its place", id)
	}
	d := l.newDraft()
	d.state = d.state.begin(id, keep)
	kind := byte(itemTrim)
	if !keep {
		kind = itemReset
	}
	if wrong := d.state.wrong(); wrong != "" {
		return invalid("%s", wrong)
	}
	d.buf = appendItem(d.buf, l.salt, &d.content, kind, id.Index, id.Term, 0)
	d.items++
	if d.state.hard != l.state.hard {
		d.hard(l.salt)
	}
	if _, err := l.write(d); err != nil {
		return err
	}
	l.mu.Lock()
	l.publish(d)
	if keep {
		l.table.removeBefore(id.Index + 1)
		l.cache.removeBefore(id.Index + 1)
	} else {
		l.superseded++
		l.table.reset(id.Index + 1)
		l.cache.cut(0)
	}
	l.mu.Unlock()
	l.prune()
	return nil
}

// prune hands the segments that hold nothing that is needed to the keeper.
func (l *Log) prune() {
	l.mu.Lock()
	need := l.current.pos
	if len(l.table.pos) > 0 {
		need = min(need, l.table.pos[0])
	}
	n := 0
	for n+1 < len(l.segments) && l.segments[n+1].pos <= need {
		n++
	}
	obsolete := l.segments[:n:n]
	l.segments = l.segments[n:]
	l.mu.Unlock()
	if n > 0 {
		l.keeper.remove(obsolete)
	}
}

// Mark tells on disk that all before it is on disk, so that damage to the last write
// is not taken for a torn one. The writer calls it when it has had nothing to write
// for a moment; a second call in a row does nothing. Errors are those of Append.
func (l *Log) Mark() error {
	if err := l.writable(); err != nil || l.marked {
		return err
	}
	d := l.newDraft()
	if _, err := l.write(d); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.publish(d)
	return nil
}

func (l *Log) writable() error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return ErrClosed
	}
	return l.failed
}

// publish makes what was written, and is on disk, what the log says. With mu held.
func (l *Log) publish(d *draft) {
	l.state = d.state
	l.end = l.current.end()
}

// write writes a draft's frame, syncs it, and returns its position.
func (l *Log) write(d *draft) (pos uint64, err error) {
	size := int64(len(d.buf))
	if l.current.used+size > l.current.size {
		if err := l.roll(size); err != nil {
			return 0, err
		}
	}
	s := l.current
	f := frame{chain: l.chain, pos: s.end(), size: uint32(size), items: d.items, content: d.content}
	f.encode(d.buf, l.salt)
	if _, err := s.file.WriteAt(d.buf, s.used); err != nil {
		return 0, l.refuse("write to "+s.name, err)
	}
	if err := s.file.Sync(); err != nil {
		return 0, l.fail("sync", err)
	}
	s.used += size
	l.chain = f.sum
	l.marked = d.items == 0
	return f.pos, nil
}

// roll begins the next segment, with room for a frame of that size. Its header is on
// disk before the first frame is written: see the package's comment.
func (l *Log) roll(size int64) error {
	s, err := l.keeper.take(headerSize + size)
	if err != nil {
		return l.refuse("make the next segment", err)
	}
	s.header = header{index: s.index, chain: l.chain, seed: l.seed, pos: l.current.end(), state: l.state}
	if err := s.begin(); err != nil {
		return l.refuse("begin "+s.name, err)
	}
	if err := s.file.Sync(); err != nil {
		return l.fail("sync", err)
	}
	l.keeper.begun()
	l.current = s
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments = append(l.segments, s)
	l.end = s.end()
	return nil
}
