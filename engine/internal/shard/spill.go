package shard

import (
	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/record"
	"trellis/engine/internal/reply"
)

// A member of a cluster has bodies in files of its own, for its journal has no places: a full record tells segment
// inLog, and no offset. A body that is to leave memory is handed out by Spill, copied to a file, and leaves when
// Spilled says where it is. Of a job that refers to a place in a file, be its body in memory or not, segment is that
// of the file. When it ends, gets another full record, or the file is to be emptied while the body is in memory, the
// place is forgotten.
//
//	         Spill           Spilled        Loaded
//	in log ---------> copied -------> cold ---------> in memory and in a file
//	  ^                 | failed, or   | ended          | Evict: cold again
//	  +-----------------+ recorded     v                | recorded, or the file is emptied: in log again

// inLog is the segment of jobs whose bodies are in no file.
const inLog = 1

// SpillTo has bodies leave memory for files. It is called before anything is fed to the shards or done with them, and
// only with Limits.Bodies.
func (e *Shards) SpillTo(files record.Files) {
	e.files = files
	e.log.Bodies, e.crowded = (*spilled)(e), files.Crowded
}

// spilled is the shards as [record.Bodies] of a member.
type spilled Shards

// Load implements record.Bodies.
func (s *spilled) Load(list []journal.Fetch) { s.files.Load(list) }

// Durable implements record.Bodies: what is committed may be copied, for no member can be without it.
func (s *spilled) Durable() journal.Pos {
	if s.log.Journal == nil {
		return 0 // all that a standby has is committed
	}
	return s.log.Journal.Committed()
}

// Spill is Evict for a member: give is called with the full records of bodies that have to be copied to files before
// they leave memory, each valid until it returns. It reports whether there may be more than about 64 KiB more, or than
// one. Spilled follows for each before the next Spill. freed counts them. No lock is held that a command needs, but
// Discard waits: give does not wait for a disk. The journal is not replaced meanwhile.
func (e *Shards) Spill(most int, give func(*journal.Record) (more bool)) (freed int64, more bool) {
	e.copies = &copies{give: give}
	defer func() { e.copies = nil }()
	return e.Evict(most)
}

// copyMost is how many bytes are copied under one lock.
const copyMost = 64 << 10

// copies are bodies that are to be copied to files. A nil one takes none.
type copies struct {
	give    func(*journal.Record) (more bool)
	records []journal.Record
	buffer  []byte // of copyMost bytes when there is something
	used    int
	pinned  []reply.Body // of those that lie in no buffer
}

// room reports whether another body may be taken under this lock.
func (c *copies) room() bool { return c == nil || c.used < copyMost-pinnedSize && len(c.pinned) == 0 }

// take takes the body of a job, whose shard is locked.
func (c *copies) take(sh *shard, j *job) {
	if c == nil {
		panic("a body would leave memory that is in no file")
	}
	if c.buffer == nil {
		c.buffer = make([]byte, copyMost)
	}
	ch := sh.present(j)
	r := sh.shared.recordOf(j, &ch, sh.tubes[j.tube].name, nil)
	r.Keys = sh.keysOf(j)
	if j.size < pinnedSize {
		n := copy(c.buffer[c.used:], sh.body(j))
		r.Body = c.buffer[c.used : c.used+n : c.used+n]
		c.used += n
	} else {
		c.pinned = append(c.pinned, sh.pin(j, 0))
		r.Body = c.pinned[0].Bytes
	}
	c.records = append(c.records, r)
	j.storage |= isCopied
}

// hand gives what was taken, and reports whether there may be more. No shard is locked.
func (c *copies) hand() (more bool) {
	if c == nil {
		return true
	}
	more = true
	for i := range c.records {
		more = c.give(&c.records[i])
	}
	for i := range c.pinned {
		c.pinned[i].Release()
	}
	c.records, c.pinned, c.used = c.records[:0], c.pinned[:0], 0
	return more
}

// unplace has a job forget that its body is in a file, or is being copied to one.
func (sh *shard) unplace(j *job) {
	if sh.shared.files == nil {
		return
	}
	j.storage &^= isCopied
	if j.segment > inLog && j.size > 0 {
		sh.shared.files.Forget(journal.Place{Segment: j.segment}, j.size)
		j.segment = inLog
	}
}

// logSegment is the segment of the journal in which the job's last full record stands.
func (sh *shard) logSegment(j *job) uint32 {
	if sh.shared.files != nil {
		return inLog
	}
	return j.segment
}

// listed gives the body of a job, which is in memory and in no file, an entry. Without room for it the body stays.
func (sh *shard) listed(j *job) {
	if sh.placeRoom() == nil {
		sh.placed(j, journal.Place{Segment: inLog}, 0)
	}
}

// lockSpilled locks the shard of a job whose body is spoken of. sh is nil if there is none. end is called at the end.
func (e *Shards) lockSpilled(id uint64) (sh *shard, j *job, end func()) {
	e.life.RLock()
	if e.discarded.Load() {
		e.life.RUnlock()
		return nil, nil, func() {}
	}
	tx := &Tx{shared: e}
	sh, _, j = e.lockJob(tx, id, clock.Always)
	return sh, j, func() {
		if sh != nil {
			sh.unlock(tx)
		}
		e.life.RUnlock()
	}
}

// Spilled says that the body of a job that Spill has handed out is in a file for certain, or with the zero place that
// this has failed. It reports whether the job refers to the place: not if it has ended since, or has another full
// record. The body leaves memory, or stays because somebody needs it, and leaves later. Any goroutine may call it, with
// no lock held.
func (e *Shards) Spilled(id uint64, at journal.Place) (refers bool) {
	sh, j, end := e.lockSpilled(id)
	defer end()
	if sh == nil || j.storage&isCopied == 0 {
		return false
	}
	j.storage &^= isCopied
	switch {
	case !at.Known():
		sh.listed(j)
		return false
	case sh.inUse(j):
		if sh.placeRoom() != nil {
			return false // without an entry it stays
		}
		j.segment = at.Segment
		sh.placed(j, at, 0)
	default:
		sh.unload(j, at)
		sh.tidier.wanted()
	}
	return true
}

// Leaves says that nothing is to be at a place in a file any more. It reports whether the body of a job is there and
// not in memory. A job with a body in memory forgets the place. Any goroutine may call it, with no lock held.
func (e *Shards) Leaves(id uint64, at journal.Place) (needed bool) {
	sh, j, end := e.lockSpilled(id)
	defer end()
	return sh != nil && sh.needs(j, at)
}

// needs is Leaves for a job, which is locked.
func (sh *shard) needs(j *job, at journal.Place) bool {
	switch {
	case j.size == 0:
		return false
	case j.cold():
		return j.place() == at
	case j.segment == at.Segment:
		sh.unplace(j)
		sh.listed(j)
	}
	return false
}

// Moved says that a body is at another place, too, for certain. It reports whether the job refers to that from now on,
// and so no more to the one before. Any goroutine may call it, with no lock held.
func (e *Shards) Moved(id uint64, from, to journal.Place) (refers bool) {
	sh, j, end := e.lockSpilled(id)
	defer end()
	if sh == nil || !sh.needs(j, from) {
		return false
	}
	j.segment, j.body = to.Segment, to.Offset
	return true
}
