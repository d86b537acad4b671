package shard

import (
	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/queue"
)

// ref names a job record, or another block, within its shard. Zero names none.
type ref = arena.Ref

// A job's state, with the values that the log and the exporter use for it.
type state uint8

const (
	unqueued state = iota // a job that is being put
	ready
	reserved
	buried
	delayed
	held      // delayed without a time: see held.go
	tombstone // no job any more: see tombstones.go
	numStates
)

func (s state) String() string {
	return [numStates]string{
		unqueued: "unqueued", ready: "ready", reserved: "reserved", buried: "buried", delayed: "delayed", held: "delayed",
		tombstone: "tombstone",
	}[s]
}

// stateOf is the state that a command names.
func stateOf(in codec.State) state {
	return [...]state{codec.Ready: ready, codec.Reserved: reserved, codec.Delayed: delayed, codec.Buried: buried}[in]
}

// shown is the state that clients are told: to them a held job is a delayed one.
func (s state) shown() state {
	if s == held {
		return delayed
	}
	return s
}

// job is a job's record: 64 bytes, a cache line, without pointers. The lock of
// its shard guards it, and it never leaves that shard.
type job struct {
	// Links belong to the queue that the job stands in. At is, of a ready job, when it
	// became ready; of a delayed one, when it will, MaxTime of a held one; of a reserved one, when its time to
	// run ends; of a buried one, its position in the order of burying.
	// Next is, of a reserved job, the index in shard.reservations of those of its session.
	queue.Links
	created  clock.Time
	pri      uint32
	ttr      uint32 // seconds, at least 1
	size     uint32 // bytes of its body, without CRLF
	body     ref    // of a cold job the offset of its place in the journal, in units of 8 bytes: see resident.go
	tube     uint32 // index in shard.tubes
	counters ref    // 0 while all that it would hold is 0
	segment  uint32 // of the journal, in which its last full record stands; of a member see spill.go
	state    state
	optional uint8 // bytes of optional fields in its last full record
	flags    uint8 // see keys.go
	storage  uint8 // see resident.go
}

// at is Links.At as a time.
func (j *job) at() clock.Time { return clock.Time(j.At) }

// sooner reports whether j goes before k among ready jobs.
func (j *job) sooner(k *job) bool {
	return j.pri < k.pri || j.pri == k.pri && j.ID < k.ID
}

// counters holds what many jobs in a queue do not have.
type counters struct {
	delay                                       uint32 // seconds, as last given by put or release
	reserves, timeouts, releases, buries, kicks uint32
	order                                       uint32 // reservations that its session had made before this one
	attempts                                    uint32 // releases and time-outs since it was put or last kicked
}

// info is what a client that has asked for it is told of a job that it reserves.
func (sh *shard) info(j *job) codec.JobInfo {
	i := codec.JobInfo{Tube: sh.tubes[j.tube].name, Pri: j.pri, TTR: j.ttr, Age: uint64(max(0, sh.now-j.created).Whole())}
	if j.counters != 0 {
		i.Attempts = sh.counters.At(j.counters).attempts
	}
	if j.flags != 0 {
		k := sh.keyedOf(j)
		i.Limited = k.limited
		if !k.lost {
			i.Unique = k.unique
		}
		if k.terms != nil {
			i.Group, i.Fair = k.terms.Group, k.terms.Fair
		}
	}
	return i
}

// onRecord notes that the job's last full record is r, and where it stands.
func (j *job) onRecord(r *journal.Record, segment uint32) {
	j.segment, j.optional = segment, uint8(r.Optional())
}
