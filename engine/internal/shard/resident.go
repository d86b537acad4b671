package shard

import (
	"fmt"

	"trellis/binlog/journal"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/ids"
	"trellis/engine/internal/resident"
)

// With Limits.Bodies not all bodies are in memory. A body is resident, in the arena, or its job is cold: then it lies
// in the journal only, in the job's last full record; of a member of a cluster in a file (spill.go). A job without a
// body, or a tombstone, is never cold. A resident body whose place in the journal is known has an entry in a list of
// its shard, by which Evict finds it. Whatever gives a full record makes such an entry, for which it has taken room
// before.

// Bits of job.storage.
const (
	isCold   uint8 = 1 << iota // its body is in the journal only
	isAhead                    // its body was loaded for what nobody waits for: see ending
	isUntold                   // it was reserved cold: its time to run begins when its client is told
	isLost                     // its body could not be loaded for what nobody waits for, which is to do without it
	isCopied                   // its body is being copied to a file: see spill.go
	isWanted                   // it is ready, and about to be reserved: see readahead.go
)

// cold reports whether the job's body is in the journal only.
func (j *job) cold() bool { return j.storage&isCold != 0 }

// place is where the last full record of a cold job lies.
func (j *job) place() journal.Place { return journal.Place{Segment: j.segment, Offset: j.body} }

// residents are the bodies of a shard that are in memory. The shard's lock guards them.
type residents struct {
	resident.Lists
	bytes  int64 // that they take
	count  int   // of them, but for those without a byte
	told   int64 // of bytes, what Shards.resident counts
	unseen int   // entries that Evict has not looked at since it has begun

	cold      int   // jobs that are
	coldBytes int64 // of their bodies
}

// countCold counts a job that has become cold, or -1 for one that is so no more.
func (x *residents) countCold(n int, size uint32) {
	x.cold += n
	x.coldBytes += int64(n) * int64(size)
}

// tellStep is how far Shards.resident may be off for each shard.
const tellStep = 64 << 10

// add counts n more bodies of size bytes, or fewer. It reports whether they have become so many that some are to leave
// memory.
func (x *residents) add(e *Shards, n int, size uint32) (crowded bool) {
	if size == 0 {
		return false
	}
	x.count += n
	x.bytes += int64(n) * arena.Footprint(size)
	if d := x.bytes - x.told; d >= tellStep || d <= -tellStep {
		x.told = x.bytes
		return e.above(e.resident.Add(d), markHigh) && d > 0
	}
	return false
}

// countBody counts a body that was given memory, or -1 for one whose memory was given back.
func (sh *shard) countBody(n int, size uint32) {
	if sh.residents != nil {
		sh.countResident(n, size)
	}
}

// countResident is countBody where bodies may leave memory.
func (sh *shard) countResident(n int, size uint32) {
	if sh.residents.add(sh.shared, n, size) {
		sh.by.crowds()
	}
}

// crowds has Config.Crowded called, after the last lock is released.
func (c *Tx) crowds() { c.wakeOnce((*evictBell)(c.shared)) }

// An evictBell is the shards in the sight of a Tx that has found many bodies.
type evictBell Shards

// Wake implements rouser.
func (s *evictBell) Wake() {
	if s.crowded != nil {
		s.crowded()
	}
}

// allocBody takes memory for a body.
func (sh *shard) allocBody(size uint32) (ref, error) {
	r, err := sh.bodies.Alloc(size)
	if err == nil {
		sh.countBody(1, size)
	}
	return r, err
}

// freeBlock gives back what allocBody has taken.
func (sh *shard) freeBlock(r ref, size uint32) {
	sh.bodies.Free(r, size)
	sh.countBody(-1, size)
}

// dropBody frees the body of a job that has no more need of it.
func (sh *shard) dropBody(j *job) {
	sh.unplace(j)
	if !j.cold() {
		sh.freeBody(j.body, j.size)
	} else {
		sh.residents.countCold(-1, j.size)
	}
}

// Marks: bodies begin to leave memory when they take more than markHigh eighths of Limits.Bodies, and go on until they
// take no more than markLow. Those that come above markKept are the first to leave: below markLow by more than what
// shards have not told, so that while a queue only grows there are always some, and its head stays.
const markHigh, markLow, markKept = 7, 6, 5

// mark is so many eighths of what bodies may take.
func (e *Shards) mark(eighths int64) int64 { return e.cfg.Limits.Bodies / 8 * eighths }

// above reports whether bodies take more than so many eighths of what they may.
func (e *Shards) above(bytes int64, eighths int64) bool { return bytes > e.mark(eighths) }

// placeRoom takes room for the entry of a body that is about to get a place in the journal.
func (sh *shard) placeRoom() error {
	if sh.residents == nil {
		return nil
	}
	return sh.residents.Room()
}

// beforeFull is placeRoom for a full record that is about to be made of a job. It would take the place of the last one
// that has the body: without the body that is lost.
func (sh *shard) beforeFull(r *journal.Record, j *job) error {
	if sh.residents != nil && len(r.Body) != int(j.size) {
		panic(fmt.Sprintf("a full record of job %d has %d bytes of a body of %d", r.ID, len(r.Body), j.size))
	}
	return sh.placeRoom()
}

// placed notes that the job's last full record is at a place in the journal, which has it behind pos. placeRoom has
// found room.
func (sh *shard) placed(j *job, place journal.Place, pos journal.Pos) {
	if sh.residents != nil {
		sh.place(j, place, pos)
	}
}

// place is placed where bodies may leave memory.
func (sh *shard) place(j *job, place journal.Place, pos journal.Pos) {
	switch {
	case j.size == 0:
	case j.cold():
		if !place.Known() {
			panic(fmt.Sprintf("the body of job %d is in the journal only, and nobody knows where", j.ID))
		}
		j.body = place.Offset
	case place.Known() || sh.shared.files != nil:
		e, x := sh.shared, sh.residents
		x.Add(resident.Entry{ID: j.ID, Pos: pos, Place: place}, e.above(e.resident.Load(), markKept))
		if x.Len()%evictLook == 0 && x.sparse() {
			sh.by.crowds()
		}
	}
}

const (
	evictLook = 256 // entries that Evict looks at under one lock
	evictMost = 64  // bodies that leave memory under one lock
)

// Evict lets bodies leave memory, if they take more of it than they should, until they do not. Only those leave that
// are in the journal for certain, that no reply refers to, and for which nobody waits. It takes those of the shard
// that has most, and looks at no more than about so many. more: it is to be called again at once, otherwise after a
// while, also when there was nothing to do. No two goroutines may call it at a time. It holds one shard's lock at a
// time, while it looks at some hundred bodies. Puts that wait for memory are tried again: while bodies take more than
// seven eighths of what they may, it is to be called ten times a second at least, and otherwise when Config.Crowded
// says so.
func (e *Shards) Evict(most int) (freed int64, more bool) {
	defer func() {
		if e.putsWait.Swap(false) {
			e.room()
		}
	}()
	e.life.RLock()
	defer e.life.RUnlock()
	if e.discarded.Load() || e.log.Bodies == nil || e.cfg.Limits.Bodies == 0 {
		return 0, false
	}
	return e.evictTo(markLow, markHigh, most)
}

// evictTo is Evict with these marks.
func (e *Shards) evictTo(low, high int64, most int) (freed int64, more bool) {
	durable, tx := e.log.Bodies.Durable(), Tx{shared: e}
	var bytes [ids.MaxShards]int64 // of shards that may have something to give
	var total int64
	sparse := false
	for i, sh := range e.shards {
		sh.lock(&tx, clock.Always) // nothing becomes due by the clock of somebody who only looks
		bytes[i] = sh.residents.bytes
		most -= sh.sweepResidents()
		sparse = sparse || sh.residents.sparse()
		sh.residents.unseen = sh.residents.Len()
		sh.unlock(&tx)
		total += bytes[i]
	}
	if e.evicting = e.above(total, low) && (e.evicting || e.above(total, high)); !e.evicting {
		return 0, sparse
	}
	for least := e.mark(low); total-freed > least; {
		if most <= 0 {
			return freed, true
		}
		fullest := 0
		for i := range e.shards {
			if bytes[i] > bytes[fullest] {
				fullest = i
			}
		}
		if bytes[fullest] == 0 {
			return freed, false // what is left cannot leave now
		}
		sh := e.shards[fullest]
		sh.lock(&tx, clock.Always)
		n, looked, left := sh.evict(durable, total-freed-least, min(most, evictLook))
		sh.unlock(&tx)
		freed += n
		if !e.copies.hand() {
			return freed, true
		}
		most -= looked
		if bytes[fullest] -= n; !left {
			bytes[fullest] = 0
		}
	}
	e.evicting = false
	return freed, false
}

// evict lets some bodies of the shard leave memory, until they have taken so many bytes or it has looked at so many.
// left: there are others that may.
func (sh *shard) evict(durable journal.Pos, bytes int64, look int) (freed int64, looked int, left bool) {
	x := sh.residents
	for n := 0; n < evictMost && looked < look && freed < bytes && sh.shared.copies.room(); looked++ {
		entry, ok := x.First(durable)
		if !ok || x.unseen == 0 {
			return freed, looked, false
		}
		x.unseen--
		switch _, j := sh.find(entry.ID); {
		case void(j, entry) || j.storage&isCopied != 0:
			x.Drop()
		case sh.pinOf(j.body, j.size) != nil:
			x.Drop()
			sh.pinOf(j.body, j.size).entry = entry
		case sh.inUse(j):
			x.Pass()
		case j.storage&isWanted != 0:
			sh.unwant(sh.tubes[j.tube], j)
			x.Pass()
		default:
			x.Drop()
			if entry.Place.Known() {
				sh.unload(j, entry.Place)
			} else {
				sh.shared.copies.take(sh, j)
			}
			freed += arena.Footprint(j.size)
			n++
		}
	}
	if freed > 0 {
		sh.tidier.wanted()
	}
	return freed, looked, true
}

// inUse reports whether somebody needs the body of a job in memory: a reply refers to it, or it was loaded.
func (sh *shard) inUse(j *job) bool {
	return sh.pinOf(j.body, j.size) != nil || sh.shared.loads.Awaited(j.ID) || j.storage&isAhead != 0 && sh.ending(j)
}

// unload has the body of a job leave memory, which lies at a place.
func (sh *shard) unload(j *job, at journal.Place) {
	sh.freeBlock(j.body, j.size)
	if j.state == ready {
		sh.tubes[j.tube].countCold(1)
	}
	if j.storage&isWanted != 0 {
		sh.unwant(sh.tubes[j.tube], j)
	}
	j.segment, j.body, j.storage = at.Segment, at.Offset, j.storage&^isAhead|isCold
	sh.residents.countCold(1, j.size)
}

// void reports whether an entry is not that of the body of a job, nil for none, any more. Of two full records in one
// segment either will do: bodies do not change, and no id is used again.
func void(j *job, e resident.Entry) bool {
	return j == nil || j.state == tombstone || j.cold() || j.segment != e.Place.Segment
}

// sparse reports whether many entries are void.
func (x *residents) sparse() bool { return x.Len() > 2*x.count+evictLook }

// sweepResidents forgets some void entries if there are many, and returns how many it has looked at.
func (sh *shard) sweepResidents() (looked int) {
	x := sh.residents
	if !x.sparse() {
		return 0
	}
	x.Sweep(evictLook/2, func(e resident.Entry) bool { // of each list
		looked++
		_, j := sh.find(e.ID)
		return void(j, e)
	})
	return looked
}

// putPatience is how long a put waits at most while bodies take more memory than they may.
const putPatience = clock.Second

// full reports whether bodies take more than they may, by more than puts wait for, or would with one of more bytes.
func (e *Shards) full(more int64) bool {
	limit := e.cfg.Limits.Bodies
	return e.resident.Load()+more > limit+limit/8
}

// roomFor is why a put, of which nothing is on record, cannot be a job yet, whose body is in memory: others have to
// leave that first. It is journal.ErrRoom if the put is to wait for it.
func (c *Tx) roomFor(in *Incoming, now clock.Time) error {
	e := c.shared
	switch limit := e.cfg.Limits.Bodies; {
	case limit == 0 || in.OnRecord() || e.resident.Load() <= limit:
		return nil
	case e.full(0) || now-in.since >= putPatience:
		e.usage.refusedBodies.Add(1)
		return errNoMemory
	}
	if e.putsWait.Store(true); now == in.since {
		e.putWaits.Add(1)
	}
	c.crowds()
	return journal.ErrRoom
}

// BodyStats is what becomes of bodies where they may leave memory, and of those who wait for that or for them.
type BodyStats struct {
	ColdJobs  int    // those whose bodies are in the journal only
	ColdBytes int64  // of these bodies
	PutWaits  uint64 // puts that have waited for others to leave memory
	Waits     int    // commands that wait for bodies
	LateWaits int    // of them, those that have waited for over a second
}

// BodyStats takes the lock of each shard once. It is zero without Limits.Bodies. Any goroutine may call it.
func (e *Shards) BodyStats() (s BodyStats) {
	if e.cfg.Limits.Bodies == 0 {
		return s
	}
	for _, sh := range e.shards {
		sh.mu.Lock()
		s.ColdJobs += sh.residents.cold
		s.ColdBytes += sh.residents.coldBytes
		sh.mu.Unlock()
	}
	s.PutWaits = e.putWaits.Load()
	s.Waits, s.LateWaits = e.loads.Waits()
	return s
}

// BodyMemory is how many bytes of memory bodies take, up to 64 KiB for each shard more or less. It is 0 without
// Limits.Bodies. Any goroutine may call it.
func (e *Shards) BodyMemory() int64 { return e.resident.Load() }
