package journal

import (
	"errors"
	"fmt"
)

// Pos is a position in the log: the number of bytes that precede it since the
// directory's first day. It grows over restarts and compaction.
type Pos uint64

// Record is a job's state in plain values. A tombstone has only ID, State, Due, Tube and
// Keys, of which it has the unique key and its seconds.
type Record struct {
	ID        uint64
	State     State
	Pri       uint32
	Delay     uint32 // seconds, as last given by put or release
	TTR       uint32 // seconds
	Created   int64  // wall clock, nanoseconds since 1970
	Due       int64  // wall clock, nanoseconds since 1970; of a delayed job or a tombstone
	BuryOrder uint64 // of a buried job: of two in a tube, the one buried later has the greater
	Reserves  uint32
	Timeouts  uint32
	Releases  uint32
	Buries    uint32
	Kicks     uint32
	Attempts  uint32 // releases and time-outs since it was put or last kicked
	Tube      string
	Body      []byte
	Keys      Keys
	Origin    Origin // the command that has made this record; not part of the job
	Absent    *Fetch // asks for the body if that is not in Body but elsewhere; otherwise nil
}

// BodySize is the length of the body in bytes, wherever that is.
func (r *Record) BodySize() uint32 {
	if r.Absent != nil {
		return r.Absent.Size
	}
	return uint32(len(r.Body))
}

// State is a job's state as the log knows it. There is none for a reserved job: a
// reservation that does not outlive the server is not on record, and its job is ready there;
// others are holds.
type State uint8

// The states. Their values are on disk.
const (
	Ready State = 1
	// Stays is the state of an update that leaves the job where it stands: who records it
	// knows only that the job is reserved. No full record has it.
	Stays   State = 2
	Buried  State = 3
	Delayed State = 4

	// Deleted is the state of a tombstone: of the job nothing is left but its unique key,
	// which is not free before Due. Only full records have it.
	Deleted State = 5

	// Held is the state of a job that is delayed until a group of jobs is complete: see
	// Terms.After.
	Held State = 6
)

func (s State) String() string {
	names := [...]string{
		Ready: "ready", Stays: "stays", Buried: "buried", Delayed: "delayed", Deleted: "deleted", Held: "held",
	}
	if int(s) < len(names) && names[s] != "" {
		return names[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// UsualAttempts is how many attempts a record without that field stands for: all releases
// and time-outs of a job that was never kicked, 0 for one that was. Jobs from beanstalkd's
// logs, and from logs before attempts were recorded, have as many.
func (r *Record) UsualAttempts() uint32 {
	if r.Kicks != 0 {
		return 0
	}
	return r.Releases + r.Timeouts
}

// Optional is how many bytes optional fields other than keys and origins take in the full record
// of r: attempts, unless they are the usual ones.
func (r *Record) Optional() int {
	if r.Attempts != r.UsualAttempts() {
		return AttemptsSize
	}
	return 0
}

// Keys are the unique key and the limited key that a job was put with, and its other terms.
// Most jobs have none of them, and the zero Keys.
type Keys struct {
	// Unique is a key that no other job of the tube has while this one lives; "" for none.
	Unique string
	// Limited is a key of which at most Limit jobs of the tube are reserved when this one
	// becomes reserved, itself included; "" for none.
	Limited string
	Limit   uint32
	// Seconds is how long nobody gets the unique key after the job was deleted.
	Seconds uint32
	// Terms are the other tags that the job was put with; nil for none. Nobody changes what
	// they point to.
	Terms *Terms
}

// Named reports whether there is more than terms.
func (k *Keys) Named() bool {
	named := *k
	named.Terms = nil
	return named != Keys{}
}

// Equal reports whether two jobs with these keys have the same ones, and the same terms.
func (k *Keys) Equal(o *Keys) bool {
	a, b := *k, *o
	a.Terms, b.Terms = nil, nil
	return a == b && (k.Terms == o.Terms || k.Terms != nil && o.Terms != nil && *k.Terms == *o.Terms)
}

// Size is what keys and terms take in a full record, in bytes.
func (k *Keys) Size() int64 {
	n := k.Terms.size()
	if k.Named() {
		n += KeysFixed + int64(len(k.Unique)) + int64(len(k.Limited))
	}
	return n
}

// Valid reports whether a record can hold the keys.
func (k *Keys) Valid() bool {
	return len(k.Unique) <= MaxKey && len(k.Limited) <= MaxKey &&
		(k.Unique != "" || k.Seconds == 0) && (k.Limited != "") == (k.Limit > 0) && k.Terms.valid()
}

// Tombstone is what is left of the keys when the job was deleted. It is zero if the unique
// key is free then.
func (k *Keys) Tombstone() Keys {
	if k.Unique == "" || k.Seconds == 0 {
		return Keys{}
	}
	return Keys{Unique: k.Unique, Seconds: k.Seconds}
}

// Lengths in bytes.
const (
	MaxTube = 200 // of the longest name of a tube
	MaxKey  = 64  // of the longest key

	// FullFixed is what every full record takes beside tube, keys and body, but for up to
	// seven bytes behind them.
	FullFixed = 72

	// KeysFixed is what the keys of a record take beside their own bytes, if there are any.
	KeysFixed = 10

	// AttemptsSize is what attempts take in a full record, unless they are the usual ones.
	AttemptsSize = 4

	// MaxTombstone is the length of the longest record of a tombstone.
	MaxTombstone = (FullFixed + MaxTube + KeysFixed + MaxKey + 7) &^ 7
)

// Size is the length in bytes of the full record of r.
func (r *Record) Size() int64 {
	n := SizeOf(r.Tube, len(r.Body)+r.Optional(), &r.Keys)
	if r.Origin != (Origin{}) {
		n += OriginSize
	}
	return n
}

// Size is the length in bytes of the full record of a job without keys in that tube. body is
// the length of its body plus [Record.Optional].
func Size(tube string, body int) int64 {
	return (FullFixed + int64(len(tube)) + int64(body) + 7) &^ 7
}

// SizeOf is Size for a job with keys.
func SizeOf(tube string, body int, k *Keys) int64 { return Size(tube, body+int(k.Size())) }

// TombstoneSize is the length in bytes of the record of the tombstone that a job with those
// keys in that tube may leave, 0 if it leaves none.
func TombstoneSize(tube string, k *Keys) int64 {
	left := k.Tombstone()
	if left == (Keys{}) {
		return 0
	}
	return SizeOf(tube, 0, &left)
}

// Ticket tells where a job's full record went.
type Ticket struct {
	Pos     Pos    // the job is on record once Committed has reached this
	Segment uint32 // to be kept with the job, for its Former
	Offset  uint32 // in the segment, as that of a Place; 0 if nobody can read it there
}

// Place is where the record went.
func (t *Ticket) Place() Place { return Place{t.Segment, t.Offset} }

// Former is a job's last full record, which the next one or a delete replaces. The zero
// Former is none.
type Former struct {
	Segment   uint32
	Size      int64 // its length in bytes, as SizeOf tells it
	Tombstone int64 // bytes reserved for the job's tombstone, as TombstoneSize tells it
}

// Counters are what the command stats shows of a log.
type Counters struct {
	Oldest, Current   uint32 // segments
	Migrated, Written uint64 // records; what was migrated was also written
}

// Errors that a caller decides by.
var (
	// ErrNoSpace tells that the disk has no room for the record. Nothing was
	// appended and nothing changed; the same call succeeds once there is space
	// again. Deleting a job never returns it.
	ErrNoSpace = errors.New("no disk space for the log")

	// ErrRoom tells that the log has no room for the record at this moment, but
	// will soon have some, or will know that the disk is full. Nothing was
	// appended. The log tells when to try again.
	ErrRoom = errors.New("the log has no room at this moment")

	// ErrBusy tells that too much waits for a disk that is slower than the
	// clients. Nothing was appended. Deleting never returns it.
	ErrBusy = errors.New("the log's disk is too slow: too much is waiting to be written")

	// ErrFailed tells that a write or a sync failed. It is for good: what is on
	// disk is no longer known, and nothing is committed any more.
	ErrFailed = errors.New("the log has failed")

	// ErrClosed tells that the log was closed.
	ErrClosed = errors.New("the log is closed")
)
