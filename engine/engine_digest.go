package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"runtime"

	"trellis/binlog/journal"
)

// Digest is a short value that is equal for engines that have the same jobs and settings of
// dead letters on record, and for others only by an accident that nobody meets.
type Digest struct {
	Jobs uint64 // their number, tombstones included
	Sum  uint64 // of the first 8 bytes of SHA-256 of each job and setting, as little-endian numbers
}

// Digest sums up all jobs, as far as they are on record: in whatever order and whatever
// shards, a reserved job as a ready one, and without the counts of reservations,
// time-outs and attempts, which may be recorded only when something else changes as well. That a delay
// has ended is not on record either: a job that is delayed until due, or for less
// long, counts as ready. A tombstone that ends until due does not count. Engines are
// compared at a due that none of them has passed, or, whatever their times are, at MaxTime:
// then all tombstones count, whenever they end, because their ends are recorded.
//
// It takes the time of a walk over all jobs (see [Engine.Walk]). While jobs come and go,
// it is of no moment in particular. Any goroutine may call it.
func (e *Engine) Digest(due Time) (Digest, error) {
	const turn = 1024
	s := digester{engine: e, due: due, hash: sha256.New()}
	for from := uint64(1); ; {
		next, err := e.Walk(from, turn, s.add)
		if err != nil {
			return s.digest, err
		}
		if next == 0 {
			return s.digest, e.Settings(s.addSetting)
		}
		from = next
		runtime.Gosched() // loops have work to do
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
	if state == journal.Deleted && s.due == MaxTime {
		due = 0
	} else if state == journal.Deleted && s.engine.sinceStart(r.Due) <= s.due {
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
	s.digest.Jobs++
	s.sumUp(b, r.Body)
	return nil
}

// addSetting adds a setting, which begins with an id that no job has.
func (s *digester) addSetting(x *journal.Setting) error {
	le := binary.LittleEndian
	b := le.AppendUint64(s.fixed[:0], 0)
	b = le.AppendUint32(b, x.MaxAttempts)
	b = le.AppendUint16(b, uint16(len(x.Tube)))
	b = append(b, x.Tube...)
	s.sumUp(b, []byte(x.DeadTube))
	return nil
}

func (s *digester) sumUp(fixed, body []byte) {
	s.hash.Reset()
	s.hash.Write(fixed)
	s.hash.Write(body)
	s.digest.Sum += binary.LittleEndian.Uint64(s.hash.Sum(s.sum[:0]))
}
