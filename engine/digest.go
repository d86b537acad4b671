package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"trellis/binlog/journal"
)

// Digest is a short value that is equal for engines that have the same jobs on record, and
// for others only by an accident that nobody meets.
type Digest struct {
	Jobs uint64 // their number, tombstones included
	Sum  uint64 // of the first 8 bytes of SHA-256 of each, as little-endian numbers
}

// Digest sums up all jobs, as far as they are on record: in whatever order and whatever
// shards, a reserved job as a ready one, and without the counts of reservations and
// time-outs, which are recorded only when something else changes as well. That a delay
// has ended is not on record either: a job that is delayed until due, or for less
// long, counts as ready, and a tombstone that ends until due does not count. Engines are
// compared at a due that none of them has passed, or,
// whatever their times are, at MaxTime.
//
// It takes the time of a walk over all jobs (see [Engine.Walk]). While jobs come and go,
// it is of no moment in particular. Any goroutine may call it.
func (e *Engine) Digest(due Time) (Digest, error) {
	const turn = 1024
	s := digester{engine: e, due: due, hash: sha256.New()}
	for from := uint64(1); ; {
		next, err := e.Walk(from, turn, s.add)
		if err != nil || next == 0 {
			return s.digest, err
		}
		from = next
	}
}

// A digester sums up jobs.
type digester struct {
	engine *Engine
	due    Time
	hash   hash.Hash
	fixed  [60 + journal.MaxTube + journal.KeysFixed + 2*journal.MaxKey]byte // all but the body
	sum    [sha256.Size]byte
	digest Digest
}

func (s *digester) add(r *journal.Record) error {
	le := binary.LittleEndian
	state, due, order := r.State, r.Due, r.BuryOrder
	if state == journal.Deleted && s.engine.sinceStart(r.Due) <= s.due {
		return nil
	}
	if state == journal.Delayed && s.engine.sinceStart(r.Due) <= s.due {
		state, due = journal.Ready, 0
	}
	b := s.fixed[:0]
	for _, n := range [...]uint64{r.ID, uint64(r.Created), uint64(due), order} {
		b = le.AppendUint64(b, n)
	}
	for _, n := range [...]uint32{r.Pri, r.TTR, r.Delay, r.Releases, r.Buries, r.Kicks} {
		b = le.AppendUint32(b, n)
	}
	b = le.AppendUint16(b, uint16(state))
	b = le.AppendUint16(b, uint16(len(r.Tube)))
	b = append(b, r.Tube...)
	if k := &r.Keys; *k != (journal.Keys{}) {
		b = le.AppendUint32(b, k.Seconds)
		b = le.AppendUint32(b, k.Limit)
		b = append(b, byte(len(k.Unique)), byte(len(k.Limited)))
		b = append(b, k.Unique...)
		b = append(b, k.Limited...)
	}
	s.hash.Reset()
	s.hash.Write(b)
	s.hash.Write(r.Body)
	sum := s.hash.Sum(s.sum[:0])
	s.digest.Jobs++
	s.digest.Sum += le.Uint64(sum)
	return nil
}
