package engine

import (
	"errors"
	"unsafe"

	"trellis/binlog/journal"
	"trellis/codec"
)

// Jobs that were put with tags have keys. What a shard knows of those lies beside the jobs,
// so that jobs without keys pay nothing for them but a bit.
//
// A unique key has one holder in a tube: a job, or the tombstone of one. It belongs to the
// tube's name, because a tombstone outlives the tube. For limited keys see limitedkeys.go, for
// tombstones tombstones.go.

// Flags of a job.
const (
	hasKeys   uint8 = 1 << iota // shard.keyed knows more
	isLimited                   // among that, a group
)

// keyed is what belongs to a job with keys, or to a tombstone. The shard's lock guards it.
type keyed struct {
	id    uint64
	keys  journal.Keys // as they are on record
	space *keyspace    // of the unique key; nil if there is none
	lost  bool         // the unique key has another holder
	group *group       // of the limited key; nil if there is none, or limits sleep

	next, prev *keyed // in the keyspace's list of tombstones
}

// A keyspace is the unique keys of a tube. The shard's lock guards it. It exists while one
// of them has a holder.
type keyspace struct {
	name        string // of the tube
	holders     map[string]*keyed
	first, last *keyed // tombstones
	tombstones  int
}

// keyedMemory is about what the keys of a job take.
const keyedMemory = int64(unsafe.Sizeof(keyed{})) + 64

// keysOfTags are the keys of a put's job.
func keysOfTags(t *codec.Tags) *journal.Keys {
	return &journal.Keys{
		Unique: string(t.Unique), Seconds: t.Seconds,
		Limited: string(t.Limited), Limit: t.Limit,
	}
}

// keysOf are the keys of a job or tombstone as they are on record.
func (sh *shard) keysOf(j *job) journal.Keys {
	if j.flags == 0 {
		return journal.Keys{}
	}
	return sh.keyed[j.ID].keys
}

var errTooManyKeys = errors.New("there are as many keys as there may be")

// attach gives a job of the tube t, which stands in no queue, its keys. Whoever has held the
// unique key has it no more.
func (sh *shard) attach(t *tube, j *job, keys journal.Keys) {
	k := sh.makeKeyed(j, keys)
	if keys.Unique != "" {
		k.space = sh.keyspace(t.name)
		if old := k.space.holders[keys.Unique]; old != nil {
			sh.loseKey(old)
		}
		sh.hold(k)
	}
	if keys.Limited != "" && !sh.engine.cfg.Stock {
		k.group = sh.groupOf(t, keys.Limited, keys.Limit)
		j.flags |= isLimited
	}
}

func (sh *shard) makeKeyed(j *job, keys journal.Keys) *keyed {
	if sh.keyed == nil {
		sh.keyed = make(map[uint64]*keyed)
	}
	k := &keyed{id: j.ID, keys: keys}
	sh.keyed[j.ID] = k
	j.flags = hasKeys
	return k
}

// dropKeys takes a job's keys away, which stands in no queue.
func (sh *shard) dropKeys(j *job) {
	k := sh.keyed[j.ID]
	delete(sh.keyed, j.ID)
	if k.space != nil && !k.lost {
		sh.release(k)
	}
	if k.group != nil {
		k.group.leave()
	}
	j.flags = 0
}

// keyspace returns the unique keys of the tube of that name, and makes room for some if
// there are none.
func (sh *shard) keyspace(name string) *keyspace {
	s := sh.keyspaces[name]
	if s == nil {
		if sh.keyspaces == nil {
			sh.keyspaces = make(map[string]*keyspace)
		}
		s = &keyspace{name: name, holders: make(map[string]*keyed)}
		sh.keyspaces[name] = s
	}
	return s
}

// holder returns who holds a unique key of the tube of that name, nil if nobody does.
func (sh *shard) holder(name, key string) *keyed {
	if s := sh.keyspaces[name]; s != nil && key != "" {
		return s.holders[key]
	}
	return nil
}

// hold makes k the holder of its unique key, which has none.
func (sh *shard) hold(k *keyed) {
	k.space.holders[k.keys.Unique] = k
	sh.keyspaces[k.space.name] = k.space // it may have lost its last holder a moment ago
	sh.totals.unique++
	sh.engine.usage.keys.Add(1)
}

// release leaves the unique key of k, its holder, without one.
func (sh *shard) release(k *keyed) {
	s := k.space
	delete(s.holders, k.keys.Unique)
	if len(s.holders) == 0 {
		delete(sh.keyspaces, s.name)
	}
	if k == s.first || k.prev != nil {
		s.unlist(k)
		sh.totals.tombstones--
	} else {
		sh.totals.unique--
	}
	sh.engine.usage.keys.Add(-1)
}

// loseKey takes the unique key from its holder. A tombstone has ended by that.
func (sh *shard) loseKey(k *keyed) {
	sh.release(k)
	k.lost = true
	if r, j := sh.find(k.id); j != nil && j.state == tombstone {
		sh.tombstones.endNow(r, j)
	}
}

// attachNew is attach for a new job, whose unique key has no holder. It fails when there are
// more keys then than there may be; the caller takes them away with the job.
func (sh *shard) attachNew(t *tube, j *job, keys *journal.Keys) error {
	e := sh.engine
	more := keys.Unique != "" || t.limitedKeyOf(keys.Limited) == nil
	sh.attach(t, j, *keys)
	// Others may attach keys at the same time, and then both be refused, but the limit holds.
	if limit := e.cfg.Limits.Keys; more && limit > 0 && e.usage.keys.Load() > int64(limit) {
		e.usage.refusedKeys.Add(1)
		return errTooManyKeys
	}
	return nil
}

// errDuplicate tells that a put was answered because its unique key has a holder.
var errDuplicate = errors.New("the unique key has a holder")

// findDuplicate answers a put whose unique key has a holder, and gives that the put's
// priority if it is more urgent. It returns errDuplicate then, or why the priority could not
// be changed, and nil if the key is free.
func (s *Session) findDuplicate(sh *shard, in *incoming, out *Output) error {
	k := sh.holder(s.used.name, in.keys.Unique)
	if k == nil {
		return nil
	}
	r, j := sh.find(k.id)
	if j.state == tombstone && j.at() <= sh.now {
		sh.loseKey(k)
		return nil
	}
	out.observes()
	out.dependOn(sh.uncommitted(sh.now))
	if j.state != tombstone && in.pri < j.pri {
		if err := sh.raise(r, j, in.pri, out); err != nil {
			return err
		}
		out.Buf = codec.AppendRaised(out.Buf, j.ID, duplicateStates[j.state], in.pri)
	} else {
		out.Buf = codec.AppendDuplicate(out.Buf, j.ID, duplicateStates[j.state])
	}
	sh.totals.duplicates++
	return errDuplicate
}

// duplicateStates are the words for a holder's state.
var duplicateStates = [numStates]string{
	ready: "READY", reserved: "RESERVED", buried: "BURIED", delayed: "DELAYED", tombstone: "DELETED",
}

// raise records a job's priority and gives it to the job.
func (sh *shard) raise(r ref, j *job, pri uint32, out *Output) error {
	ch := sh.present(j)
	ch.pri = pri
	if err := sh.record(j, &ch, out); err != nil {
		return err
	}
	if j.state == ready {
		sh.apply(r, j, &ch)
	} else {
		j.pri = pri // it has no part in the order of other jobs
	}
	return nil
}
