package record

import (
	"errors"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/vfs"
)

// FilePrefix starts the name of every segment's file.
const FilePrefix = "trellis."

// FileName is the name of the file of the segment with that index.
func FileName(index uint32) string { return vfs.Series(FilePrefix).Name(index) }

// FileIndex is the index in a file's name, or 0 if it is not a segment's.
func FileIndex(name string) uint32 { return vfs.Series(FilePrefix).Number(name) }

const (
	magic         = "TRELLIS\n"
	formatVersion = 1

	// HeaderSize is the length in bytes of a segment's header.
	HeaderSize = 80
)

// Header starts every segment. Its fields stand in the order of the format.
type Header struct {
	Seed    uint32      // the directory's
	Index   uint32      // of the segment, from 1 on
	Oldest  uint32      // the oldest segment that was needed when this one was begun
	Base    journal.Pos // of the header
	Synced  journal.Pos // all before it is certain to be on disk
	LastID  uint64      // no larger id was used before this segment
	Created int64       // wall clock, nanoseconds since 1970

	// Boot and Sync are as in the start record of the run that has begun the
	// segment, because that record may have gone with an older segment.
	Boot uint64
	Sync SyncPolicy
}

// SyncPolicy says when a log syncs what it has written. Its values are on disk.
type SyncPolicy int64

// The policies, beside those of a time: to sync at most that long after a write.
const (
	SyncAlways SyncPolicy = 0  // at each commit
	SyncNever  SyncPolicy = -1 // when the kernel thinks fit
)

// Interval is the time of a policy that is neither of these, and zero of both.
func (p SyncPolicy) Interval() time.Duration { return time.Duration(max(p, 0)) }

// Encode fills the first HeaderSize bytes of b.
func (h *Header) Encode(b []byte) {
	clear(b[:HeaderSize])
	copy(b, magic)
	le.PutUint32(b[8:], formatVersion)
	encode(b[12:], h)
	le.PutUint32(b[76:], headerSum(b))
}

func headerSum(b []byte) uint32 { return sum(0, b[:76]) }

// Errors of Header.Decode about headers that no crash has made.
var (
	// ErrVersion tells of a segment that a later program has written.
	ErrVersion = errors.New("a version of the format that this program does not know")

	// ErrDisowned tells of a segment whose header says that the segment is not
	// needed.
	ErrDisowned = errors.New("the header says that the segment itself is not needed")
)

// Decode reads the header at the start of b, or tells what is wrong with it and
// leaves h as it was.
func (h *Header) Decode(b []byte) error {
	switch {
	case len(b) < HeaderSize:
		return errors.New("the file is too short for a segment's header")
	case string(b[:8]) != magic:
		return errors.New("not the header of a segment")
	case headerSum(b) != le.Uint32(b[76:]):
		return errors.New("the header's checksum is wrong")
	case le.Uint32(b[8:]) != formatVersion:
		return ErrVersion
	case le.Uint32(b[20:]) > le.Uint32(b[16:]):
		return ErrDisowned
	}
	decode(b[12:], h)
	return nil
}

// Salt is where the checksums of a segment's records start.
func (h *Header) Salt() Salt { return NewSalt(h.Seed, h.Index) }
