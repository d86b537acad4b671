package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
)

// Digest is a short value that is equal for queues that have the same jobs and settings of
// dead letters on record, and for others only by an accident that nobody meets.
type Digest struct {
	Jobs uint64 // their number, tombstones included
	Sum  uint64 // of the first 8 bytes of SHA-256 of each job and setting, as little-endian numbers
}

// A Digester sums up jobs and settings, in whatever order: a reserved job as a ready one, and
// without the counts of reservations, time-outs and attempts, which may be recorded only when
// something else changes as well. That a delay has ended is not on record either: a job that is
// delayed until the digester's time, or for less long, counts as ready. A tombstone that ends
// until then does not count. Queues are compared at a time that none of them has passed, or,
// whatever their times are, at the end of time: then all tombstones count, whenever they end,
// because their ends are recorded.
type Digester struct {
	digest Digest
	until  int64 // by the wall clock, in nanoseconds since 1970; math.MaxInt64 for the end of time
	hash   hash.Hash
	fixed  [60 + MaxTube + KeysFixed + 2*MaxKey]byte // all but the body
	sum    [sha256.Size]byte
}

// NewDigester makes a digester for a time of the wall clock, in nanoseconds since 1970.
func NewDigester(until int64) *Digester { return &Digester{until: until, hash: sha256.New()} }

// Digest is of what was added.
func (s *Digester) Digest() Digest { return s.digest }

// Add adds a job or a tombstone.
func (s *Digester) Add(r *Record) error {
	le := binary.LittleEndian
	state, due, order := r.State, r.Due, r.BuryOrder
	if state == Deleted && s.until == math.MaxInt64 {
		due = 0
	} else if state == Deleted && r.Due <= s.until {
		return nil
	}
	if state == Delayed && r.Due <= s.until {
		state, due = Ready, 0
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
	if k := &r.Keys; *k != (Keys{}) {
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

// AddSetting adds a setting, which begins with an id that no job has.
func (s *Digester) AddSetting(x *Setting) error {
	le := binary.LittleEndian
	b := le.AppendUint64(s.fixed[:0], 0)
	b = le.AppendUint32(b, x.MaxAttempts)
	b = le.AppendUint16(b, uint16(len(x.Tube)))
	b = append(b, x.Tube...)
	s.sumUp(b, []byte(x.DeadTube))
	return nil
}

func (s *Digester) sumUp(fixed, body []byte) {
	s.hash.Reset()
	s.hash.Write(fixed)
	s.hash.Write(body)
	s.digest.Sum += binary.LittleEndian.Uint64(s.hash.Sum(s.sum[:0]))
}
