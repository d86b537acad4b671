package shard

import (
	"errors"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"unsafe"

	"trellis/binlog/journal"
	"trellis/engine/account"
	"trellis/engine/internal/groups"
	"trellis/engine/internal/queue"
	"trellis/engine/internal/reply"
)

// Jobs that were put with tags have keys, or other terms. What a shard knows of those lies beside the jobs,
// so that jobs without keys pay nothing for them but a bit.
//
// A unique key has one holder in a tube: a job, or the tombstone of one. It belongs to the
// tube's name, because a tombstone outlives the tube. For limited keys see
// limitedkeys.go, for tombstones tombstones.go.

// Flags of a job.
const (
	hasKeys   uint8 = 1 << iota // its keys are in shard.keyed
	isLimited                   // and it belongs to a group
	isFair                      // and it has a fair key
	hasGroups                   // and it has a part in groups: see held.go
	expires                     // and it has an expiry, which Config.Stock leaves without effect
)

// keyed is what belongs to a job with keys, or to a tombstone. The shard's lock guards it.
type keyed struct {
	id              uint64
	unique, limited string // "" for none
	seconds, limit  uint32
	terms           *terms // nil if there are none

	space *keyspace // of the unique key; nil if there is none
	lost  bool      // the unique key has another holder
	place uint32    // in the heap of expiries, counted from 1; 0 if it does not stand there
	group *group    // of the limited key; nil if there is none, or Config.Stock is set, which leaves limits without effect

	next, prev *keyed // in the keyspace's list of tombstones
	nextByID   *keyed // in a bucket of shard.keyed
	nextByKey  *keyed // in a bucket of shard.holders
}

// terms are those of a job, of which nothing changes that is on record. The shard's lock guards
// them.
type terms struct {
	journal.Terms
	fair   *fairKey      // nil if there is none, or Config.Stock is set
	buried bool          // counted as a buried member of group
	group  *groups.Group // that it is a member of; nil for none
	held   *groups.Held  // nil unless it is held
}

// newKeyed makes the record of a job's keys, which the shard does not know yet.
func newKeyed(id uint64, keys *journal.Keys) *keyed {
	k := &keyed{id: id}
	k.setKeys(keys)
	if keys.Terms != nil {
		k.terms = &terms{Terms: *keys.Terms}
	}
	return k
}

// setKeys makes the keys others, but not the terms.
func (k *keyed) setKeys(keys *journal.Keys) {
	k.unique, k.seconds, k.limited, k.limit = keys.Unique, keys.Seconds, keys.Limited, keys.Limit
}

// keys are the keys and terms as they are on record.
func (k *keyed) keys() journal.Keys {
	keys := journal.Keys{Unique: k.unique, Seconds: k.seconds, Limited: k.limited, Limit: k.limit}
	if k.terms != nil {
		keys.Terms = &k.terms.Terms
	}
	return keys
}

// A keyspace is the unique keys of a tube. The shard's lock guards it. It exists while one
// of them has a holder.
type keyspace struct {
	name        string // of the tube
	hash        uint64 // of the name
	holders     int    // of keys: jobs and tombstones
	first, last *keyed // tombstones
	tombstones  int
	next        *keyspace // in a bucket of shard.keyspaces
	account.Holding

	before, after *keyspace // in the list shard.spaces
}

// byTubeName finds the unique keys of a tube by its name.
type byTubeName struct{}

func (byTubeName) Hash(s *keyspace) uint64     { return s.hash }
func (byTubeName) Next(s *keyspace) **keyspace { return &s.next }

// keyspaceFootprint is the memory that the unique keys of a tube are counted for together:
// a record, not more than two buckets, and the tube's name, which may outlive the tube.
func keyspaceFootprint(name string) int64 {
	return int64(unsafe.Sizeof(keyspace{})+2*unsafe.Sizeof((*keyspace)(nil))) + textFootprint(name)
}

// byJobID finds what belongs to jobs and tombstones by their ids.
type byJobID struct{}

func (byJobID) Hash(k *keyed) uint64  { return hashOfID(k.id) }
func (byJobID) Next(k *keyed) **keyed { return &k.nextByID }

// hashOfID multiplies as Fibonacci hashing does (D. Knuth, TAOCP 6.4), and folds the product, so
// that its lower bits depend on all of the id.
func hashOfID(id uint64) uint64 {
	hi, lo := bits.Mul64(id^idSeed, 0x9E3779B97F4A7C15)
	return hi ^ lo
}

// idSeed keeps clients, who choose by their deletes which ids stay, from keeping those that
// share a bucket.
var idSeed = rand.Uint64()

// byUniqueKey finds the holders of unique keys by tube and key.
type byUniqueKey struct{}

func (byUniqueKey) Hash(k *keyed) uint64  { return k.space.hash ^ hashOfKey(k.unique) }
func (byUniqueKey) Next(k *keyed) **keyed { return &k.nextByKey }

// The seeds keep clients from choosing keys that share a bucket. There are two, because the
// hash of a unique key is made of both hashes: with one seed, the keys that are named like
// their tubes would all have the same.
var keySeed, tubeSeed = maphash.MakeSeed(), maphash.MakeSeed()

func hashOfKey(key string) uint64   { return maphash.String(keySeed, key) }
func hashOfTube(name string) uint64 { return maphash.String(tubeSeed, name) }

// keyedMemory is what the keys of a job take beside their text: a record, and not more than
// two buckets in each of two tables.
const keyedMemory = int64(unsafe.Sizeof(keyed{})+4*unsafe.Sizeof((*keyed)(nil))) + 8

// keysFootprint is the memory that the keys of a job, or of a tombstone, are counted for.
// The text of a limited key is counted once for all jobs that have it: see limitedKeyFootprint.
func keysFootprint(keys *journal.Keys) int64 {
	if keys == nil || *keys == (journal.Keys{}) {
		return 0
	}
	n := keyedMemory + textFootprint(keys.Unique) + termsFootprint(keys.Terms)
	if keys.Limited != "" || keys.Fair() != "" {
		n += entryMemory
	}
	return n
}

// termsFootprint is the memory that the terms of a job are counted for. The text of a fair key is
// counted once for all jobs that have it: see fairKeyFootprint.
func termsFootprint(t *journal.Terms) int64 {
	if t == nil {
		return 0
	}
	n := int64(unsafe.Sizeof(terms{})) + textFootprint(t.Group) + textFootprint(t.After)
	if t.Expires > 0 {
		n += expiryMemory
	}
	return n
}

// entryMemory is what a job may take in the heap of its group, which has some room to spare.
const entryMemory = int64(unsafe.Sizeof(queue.Entry{})) + 8

// textFootprint is the memory of a string: the allocator rounds up.
func textFootprint(s string) int64 { return int64(len(s)+15) &^ 15 }

// What a job with keys costs of a round's budget: its keys lie apart from each other in
// memory.
const (
	keyedCost     = 4  // to end or change it
	keyedMoveCost = 16 // to move it to another tube
)

// cost is what it takes of a round's budget to end or change the job.
func (j *job) cost() int {
	if j.flags != 0 {
		return keyedCost
	}
	return 1
}

// moveCost is what it takes of a round's budget to move the job to another tube.
func (j *job) moveCost() int {
	n := 2 + int(j.size/1024)
	if j.flags != 0 {
		n += keyedMoveCost
	}
	return n
}

// keyCount is how many keys these are.
func keyCount(keys *journal.Keys) (n int64) {
	if keys.Unique != "" {
		n++
	}
	if keys.Limited != "" {
		n++
	}
	if keys.Fair() != "" {
		n++
	}
	return n
}

// keysOf are the keys of a job or tombstone as they are on record.
func (sh *shard) keysOf(j *job) journal.Keys {
	if j.flags == 0 {
		return journal.Keys{}
	}
	return sh.keyedOf(j).keys()
}

// keyedOf returns what belongs to a job with keys, or to a tombstone.
func (sh *shard) keyedOf(j *job) *keyed {
	for k := sh.keyed.First(hashOfID(j.ID)); k != nil; k = k.nextByID {
		if k.id == j.ID {
			return k
		}
	}
	return nil
}

var errTooManyKeys = errors.New("there are as many keys as there may be")

// attach gives a job of the tube t, which stands in no queue, the keys of k, a record of its
// id and keys only. A former holder of the unique key loses it. made: it is the first member
// of its group.
func (sh *shard) attach(t *tube, j *job, k *keyed) (made bool) {
	sh.addKeyed(j, k)
	if k.unique != "" {
		k.space = sh.keyspace(t.name)
		if old := sh.holderIn(k.space, k.unique); old != nil {
			sh.loseKey(old)
		}
		sh.hold(k)
	}
	if k.limited != "" && !sh.shared.cfg.Stock {
		k.group = sh.groupOf(t, k.limited, k.limit)
		k.limited = k.group.key.key // one text for all jobs of the key
		j.flags |= isLimited
	}
	if x := k.terms; x != nil && x.Fair != "" && !sh.shared.cfg.Stock {
		x.fair = sh.joinFair(t, x.Fair)
		x.Fair = x.fair.key // one text here as well
		j.flags |= isFair
	}
	if k.terms != nil && k.terms.Expires > 0 && !sh.shared.cfg.Stock {
		j.flags |= expires
	}
	if x := k.terms; x != nil && (x.Group != "" || x.After != "") {
		j.flags |= hasGroups
		if x.Group != "" && x.group == nil {
			made = sh.join(x)
		}
	}
	return made
}

// addKeyed makes a job, or a tombstone, one that has keys.
func (sh *shard) addKeyed(j *job, k *keyed) {
	sh.keyed.Insert(k)
	j.flags = hasKeys
}

// removeKeys takes the keys from a job that stands in no queue, and returns their record.
func (sh *shard) removeKeys(j *job) *keyed {
	k := sh.keyedOf(j)
	sh.keyed.Remove(k)
	sh.forgetExpiry(k)
	if k.space != nil && !k.lost {
		sh.release(k)
	}
	sh.leaveGroups(j, k)
	j.flags = 0
	return k
}

// leaveGroups takes a job off those of its limited key and of its fair key.
func (sh *shard) leaveGroups(j *job, k *keyed) {
	if k.group != nil {
		k.group.remove()
		k.group = nil
	}
	if j.flags&isFair != 0 {
		sh.leaveFair(sh.tubes[j.tube], k.terms.fair)
		k.terms.fair = nil
	}
}

// keyspace returns the unique keys of the tube of that name. If there are none, it makes an
// empty keyspace, which the shard does not know before the first hold.
func (sh *shard) keyspace(name string) *keyspace {
	if s := sh.keyspaceOf(name); s != nil {
		return s
	}
	return &keyspace{name: name, hash: hashOfTube(name)}
}

// keyspaceOf returns the unique keys of the tube of that name, nil if none has a holder.
func (sh *shard) keyspaceOf(name string) *keyspace {
	for s := sh.keyspaces.First(hashOfTube(name)); s != nil; s = s.next {
		if s.name == name {
			return s
		}
	}
	return nil
}

// holder returns who holds a unique key of the tube of that name, nil if nobody does.
func (sh *shard) holder(name, key string) *keyed {
	if key == "" {
		return nil
	}
	if s := sh.keyspaceOf(name); s != nil {
		return sh.holderIn(s, key)
	}
	return nil
}

func (sh *shard) holderIn(s *keyspace, key string) *keyed {
	for k := sh.holders.First(s.hash ^ hashOfKey(key)); k != nil; k = k.nextByKey {
		if k.space == s && k.unique == key {
			return k
		}
	}
	return nil
}

// hold makes k the holder of its unique key, which has none.
func (sh *shard) hold(k *keyed) {
	sh.holders.Insert(k)
	if k.space.holders++; k.space.holders == 1 {
		sh.keyspaces.Insert(k.space)
		sh.enlist(k.space)
		sh.by.countBytes(keyspaceFootprint(k.space.name))
		k.space.CountBytes(keyspaceFootprint(k.space.name))
	}
	k.space.CountKeys(1)
	sh.totals.unique++
	sh.shared.usage.keys.Add(1)
}

// release leaves the unique key of k, which has held it, without a holder.
func (sh *shard) release(k *keyed) {
	s := k.space
	sh.holders.Remove(k)
	s.CountKeys(-1)
	if s.holders--; s.holders == 0 {
		sh.keyspaces.Remove(s)
		sh.delist(s)
		sh.by.refundBytes(keyspaceFootprint(s.name))
		s.CountBytes(-keyspaceFootprint(s.name))
	}
	if k == s.first || k.prev != nil {
		s.unlist(k)
		sh.totals.tombstones--
	} else {
		sh.totals.unique--
	}
	sh.shared.usage.keys.Add(-1)
}

// loseKey takes the unique key from its holder, by which a tombstone ends.
func (sh *shard) loseKey(k *keyed) {
	sh.release(k)
	k.lost = true
	if r, j := sh.find(k.id); j != nil && j.state == tombstone {
		keys := k.keys()
		k.space.CountBytes(-tombstoneFootprint(&keys)) // it is about to end, and nobody's any more
		sh.tombstones.endNow(r, j)
	}
}

// attachNew is attach for a new job, whose unique key has no holder. It fails when there are
// more keys then than there may be; whoever calls it takes them away with the job.
func (sh *shard) attachNew(t *tube, j *job, keys *journal.Keys) (*keyed, error) {
	e := sh.shared
	fair := keys.Fair()
	more := keys.Unique != "" || keys.Limited != "" && t.limitedKeyOf(keys.Limited) == nil ||
		fair != "" && t.fairKeyOf(fair) == nil
	k := newKeyed(j.ID, keys)
	if sh.attach(t, j, k) {
		more = true
	}
	// Others may attach keys at the same time, and then both be refused, but the limit holds.
	if limit := e.cfg.Limits.Keys; more && limit > 0 && e.usage.keys.Load() > int64(limit) {
		e.usage.refusedKeys.Add(1)
		return nil, errTooManyKeys
	}
	if more && !t.Account().KeysFit() {
		return nil, errTooManyKeys
	}
	return k, nil
}

// raise records a job's priority and gives it to the job.
func (sh *shard) raise(r ref, j *job, pri uint32, out *reply.Output) error {
	ch := sh.present(j)
	ch.pri = pri
	if err := sh.record(j, &ch, out); err != nil {
		return err
	}
	if j.state == ready {
		sh.reorder(r, j, &ch)
	} else {
		j.pri = pri // it has no part in the order of other jobs
	}
	return nil
}
