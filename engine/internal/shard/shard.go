package shard

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"trellis/binlog/journal"
	"trellis/engine/account"
	"trellis/engine/histogram"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/groups"
	"trellis/engine/internal/hashtable"
	"trellis/engine/internal/ids"
	"trellis/engine/internal/loads"
	"trellis/engine/internal/numbers"
	"trellis/engine/internal/queue"
	"trellis/engine/internal/quota"
	"trellis/engine/internal/record"
	"trellis/engine/internal/roster"
	"trellis/engine/internal/settings"
	"trellis/engine/internal/throttle"
)

// Shards is what the shards have in common. What is not marked otherwise does not change.
type Shards struct {
	cfg      settled
	log      record.Log   // another one when a standby begins to serve
	copies   *copies      // of the Spill that is under way; as evicting
	files    record.Files // that bodies leave memory for: see spill.go; nil where they are in the journal
	start    atomic.Int64 // wall clock at Time 0, nanoseconds since 1970
	seed     maphash.Seed
	shards   []*shard
	ids      ids.Index
	roster   roster.Roster[tube, *tube] // of all tubes: list-tubes shows them in its order
	settings settings.List
	accounts account.Book
	memory   quota.Pool // of Limits.Memory
	usage    usage
	resident atomic.Int64 // bytes of bodies in memory, but for what shards have not told yet: see residents
	loads    loads.Table
	wanted   atomic.Int64  // bytes of jobs that are: see readahead.go
	putsWait atomic.Bool   // some do until Evict has called room
	putWaits atomic.Uint64 // puts that ever did
	room     func()        // has commands that found no room tried again
	crowded  func()        // has Evict called; may be nil
	groups   groups.Table

	// defaultTube always exists. emptyTube, of its name and shard, is in no list and always empty: it takes the place of
	// the first one for those who may not have that.
	defaultTube, emptyTube *tube

	LoopNumbers    numbers.Table[ReservationSet] // of the loops of all members
	contradictions atomic.Uint64                 // records of reservations that did not fit: see Contradictions
	lingering      atomic.Int64                  // settings by which jobs linger

	pursesMu sync.Mutex
	purses   []*purse // of the loops; guarded by pursesMu

	life      sync.RWMutex  // held to discard the shards, and shared by those who walk them
	discarded atomic.Bool   // they are, or are about to be
	evicting  bool          // bodies leave memory until they take no more than the lower mark; for who calls Evict
	era       atomic.Uint32 // its lowest bit marks the puts that go on record now: see Walk
	walks     sync.Mutex    // held to change era, and until the puts of the era before are jobs
}

// A settled is what all shards go by.
type settled struct {
	Limits Limits
	Stock  bool // see Config.Stock
}

// A shard holds some of the tubes with all their jobs, reservations and timers,
// under one lock. Everything in it is guarded by that lock. For the order of locks see
// doc.go.
type shard struct {
	shared *Shards
	number int
	self   shardSet // the set of this shard alone

	mu sync.Mutex
	by *Tx // of the goroutine that holds mu

	byName    map[string]*tube
	tubes     []*tube // nil where free
	freeTubes []uint32
	settings  map[string]*journal.Setting // by tube; nil until there is one
	limits    map[string]*throttle.Limits // of the settings that have some, by tube; nil until there is one

	jobs     arena.Slab[job]
	counters arena.Slab[counters]
	table    queue.Table // of jobs
	bodies   arena.Bodies
	pins     map[bodyKey]*pin // bodies that replies refer to

	reservations     []*reservations // nil where free; entry 0 stays free
	freeReservations []uint32

	alarm func(clock.Time) // asks the loop that serves the shard's deadlines to lock it then; nil while there is none
	wheel queue.Wheel
	now   clock.Time // when the lock was last taken; never goes back
	due   clock.Time // when the wheel wants to be advanced; later than now, except while it is advanced
	armed clock.Time // the earliest time that the loop was asked for and that has not come
	moves int        // how many more jobs may become ready by time, or be handed over, while the lock is held
	still bool       // deadlines are not met: it stands by, or is held
	fed   bool       // by a follower: what it has comes from the records of others

	lastID  uint64         // the greatest id of a put whose body was in hand
	retired ids.Retirement // ids of deleted jobs that are still to be counted
	buries  uint64         // the greatest position in the order of burying
	totals  shardTotals
	tidier  tidier
	journal journalShard

	residents *residents // nil without Limits.Bodies

	keyed      hashtable.Table[keyed, byJobID]       // of jobs with keys, and of tombstones
	holders    hashtable.Table[keyed, byUniqueKey]   // of unique keys
	keyspaces  hashtable.Table[keyspace, byTubeName] // of tubes
	spaces     *keyspace                             // all keyspaces, a list
	recounting *keyspace                             // of that list: where the recount is that goes on now
	tombstones tombstones
	held       groups.Lists
	firings    firings
	expiries   expiries

	_ [64]byte // keeps the next shard's lock off this one's cache lines
}

// shardTotals sums over the shard's tubes what the command stats shows.
type shardTotals struct {
	in             [numStates]int // jobs by state
	urgent         int            // of the ready ones
	puts, timeouts uint64
	retries        [numCauses]uint64   // jobs that were delayed because they had failed
	deadLetters    uint64              // jobs that became dead letters, counted where they are buried
	expired        uint64              // jobs that were deleted because they had expired
	expiredLetters uint64              // and that were buried, counted where they are
	ready          histogram.Histogram // how long jobs were ready before they were reserved
	duplicates     uint64              // puts whose unique key had a holder
	unique         int                 // unique keys that jobs hold
	tombstones     int                 // and that tombstones hold
	limited, fair  int                 // limited keys, and fair ones
	fired          uint64              // jobs that were held until their groups were complete
}

// lock takes the shard for c and does what is due in it, so that what c sees
// does not depend on how late a timer is, unless very much is due at once.
func (sh *shard) lock(c *Tx, now clock.Time) {
	sh.mu.Lock()
	c.held |= sh.self
	sh.by, sh.now, sh.moves = c, max(sh.now, now), maxMoves
	if sh.due <= sh.now && !sh.still {
		sh.fire()
	}
}

// unlock releases the shard and, with the last of c's locks, fires groups and wakes loops. It is not to
// be deferred where the shard is being changed: a panic has to leave the lock
// held, for [Loop.Busy] to tell.
func (sh *shard) unlock(c *Tx) {
	now := sh.now
	sh.by = nil
	sh.mu.Unlock()
	c.held &^= sh.self
	if c.held == 0 && len(c.firings)+len(c.wakers) > 0 {
		c.released(sh.shared, now)
	}
}

// maxMoves is how many jobs at most become ready by time, or are handed to waiting
// sessions, before others get the lock. 0.1 to 0.2 microseconds are usual for one
// that becomes ready.
const maxMoves = 1024

// spentMoves is maxMoves for those whose budget is spent. It is more than is due at
// once as a rule.
const spentMoves = 32

// fire fires what is due, at the expense of whoever has the lock. When that is too much at
// once, the rest is due a nanosecond later: then whoever next takes the lock goes on.
func (sh *shard) fire() {
	if b := sh.by.budget; b != nil && *b <= 0 {
		sh.moves = spentMoves
	}
	most := sh.moves
	sh.expireDue()
	if timers := most; sh.wheel.Advance(int64(sh.now), &timers) {
		sh.due = clock.Time(sh.wheel.Due())
	} else {
		sh.due = sh.now + 1
	}
	sh.by.spend(most - sh.moves)
}

// mayMove reports whether one more job may become ready by time, or be handed over.
func (sh *shard) mayMove() bool {
	sh.moves--
	return sh.moves >= 0
}

// arm sets t to fire at or before at; a timer that fires sooner stays as it is.
// MaxTime needs no timer.
func (sh *shard) arm(t *queue.Timer, at clock.Time) {
	if at == clock.MaxTime {
		return
	}
	if t.Scheduled() {
		if clock.Time(t.At()) <= at {
			return
		}
		sh.wheel.Cancel(t)
	}
	if sh.now < sh.due {
		sh.wheel.Skip(int64(sh.now))
	}
	sh.wheel.Schedule(t, int64(at))
	if at < sh.due {
		sh.due = at
		sh.setAlarm()
	}
}

// setAlarm asks the shard's loop to take the lock when something is due.
func (sh *shard) setAlarm() {
	if sh.due < sh.armed && sh.alarm != nil && !sh.still {
		sh.armed = sh.due
		sh.alarm(sh.due)
	}
}

func (sh *shard) job(r ref) *job { return sh.jobs.At(r) }

// find returns a job, or tombstone, of the shard by its id.
func (sh *shard) find(id uint64) (ref, *job) {
	p := sh.shared.ids.Get(id)
	if p == 0 || p.Shard() != sh.number {
		return 0, nil
	}
	return p.Ref(), sh.job(p.Ref())
}

// body is a job's body, nil of a cold job.
func (sh *shard) body(j *job) []byte {
	if j.cold() {
		return nil
	}
	return sh.bodies.Bytes(j.body, j.size)
}

// shardSet has a bit for each shard.
type shardSet = ids.Set
