package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
)

// Digest is a short value that is equal for queues that have the same jobs, settings and
// holds on record, and for others only by an accident that nobody meets.
type Digest struct {
	Jobs  uint64 // their number, tombstones included
	Sum   uint64 // of the first 8 bytes of SHA-256 of each job and setting, as little-endian numbers
	Holds uint64 // the same of each hold
}

// A Digester sums up jobs, settings and holds, in whatever order: a reserved job as a ready one, and
// without the counts of reservations, time-outs and attempts, which may be recorded only when
// something else changes as well. That a delay has ended is not on record either: a job that is
// delayed until the digester's time, or for less long, counts as ready. A tombstone that ends
// until then does not count. Queues are compared at a time that none of them has passed, or,
// whatever their times are, at the end of time: then all tombstones count, whenever they end,
// because their ends are recorded. A hold counts if its time to run ends behind the last record:
// whether another one has ended is seen by clocks, which differ.
type Digester struct {
	digest Digest
	until  int64 // by the wall clock, in nanoseconds since 1970; math.MaxInt64 for the end of time
	last   int64 // time of the last record, in the same way
	hash   hash.Hash
	fixed  [60 + MaxTube + KeysFixed + 2*MaxKey + TermsFixed + 3*MaxKey]byte // all but the body
	sum    [sha256.Size]byte
}

// NewDigester makes a digester for a time of the wall clock, and for that of the last record, in
// nanoseconds since 1970.
func NewDigester(until, last int64) *Digester {
	return &Digester{until: until, last: last, hash: sha256.New()}
}

// Digest is of what was added.
func (s *Digester) Digest() Digest { return s.digest }

// Add adds a job or a tombstone, and its hold unless that is nil.
func (s *Digester) Add(r *Record, h *Hold) error {
	if h != nil && h.End > s.last {
		s.addHold(h)
	}
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
	if k := &r.Keys; k.Named() {
		b = le.AppendUint32(b, k.Seconds)
		b = le.AppendUint32(b, k.Limit)
		b = append(b, byte(len(k.Unique)), byte(len(k.Limited)))
		b = append(b, k.Unique...)
		b = append(b, k.Limited...)
	}
	if t := r.Keys.Terms; t != nil {
		b = le.AppendUint32(b, t.Expires)
		b = append(b, byte(len(t.Fair)), byte(len(t.Group)), byte(len(t.After)), byte(number(t.Settled)))
		b = append(b, t.Fair...)
		b = append(b, t.Group...)
		b = append(b, t.After...)
	}
	s.digest.Jobs++
	s.digest.Sum += s.sumOf(b, r.Body)
	return nil
}

// addHold adds who has a job, until when, and how often it was reserved.
func (s *Digester) addHold(h *Hold) {
	b := s.fixed[:0]
	for _, n := range [...]uint64{h.ID, h.Session, uint64(h.End), uint64(h.Reserves)} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	s.digest.Holds += s.sumOf(b, nil)
}

// AddSetting adds a setting, which begins with an id that no job has.
func (s *Digester) AddSetting(x *Setting) error {
	le := binary.LittleEndian
	b := le.AppendUint64(s.fixed[:0], 0)
	b = le.AppendUint32(b, x.Attempts)
	b = le.AppendUint16(b, uint16(len(x.Tube)))
	b = append(b, x.Tube...)
	if !x.Plain() { // otherwise it is a setting that programs know which know no others
		for _, n := range [...]uint32{
			x.RetryMin, x.RetryFactor, x.RetryMax, x.RetryJitter, x.Rate, x.Per, x.Burst, x.MaxReserved, x.Expire,
			uint32(number(x.Disconnects)), uint32(number(x.Paused)),
		} {
			b = le.AppendUint32(b, n)
		}
	}
	if x.Linger > 0 { // otherwise it is a setting that programs know which know no lingering
		b = le.AppendUint32(b, x.Linger)
	}
	s.digest.Sum += s.sumOf(b, []byte(x.Dead))
	return nil
}

// sumOf is what something adds to a digest.
func (s *Digester) sumOf(fixed, body []byte) uint64 {
	s.hash.Reset()
	s.hash.Write(fixed)
	s.hash.Write(body)
	return binary.LittleEndian.Uint64(s.hash.Sum(s.sum[:0]))
}
