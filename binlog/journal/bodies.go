package journal

import (
	"cmp"
	"errors"
)

// A Place is where a job's full record lies. The zero Place is none: no record is at the start of
// a segment.
type Place struct {
	Segment uint32
	Offset  uint32 // from the segment's start, in units of 8 bytes; 0: not known
}

// Known reports whether a record can be read there.
func (p Place) Known() bool { return p.Offset != 0 }

// Compare orders places as they are best read: those of a segment from its start to its end.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Segment, q.Segment), cmp.Compare(p.Offset, q.Offset))
}

// A Lane says who waits for a body.
type Lane uint8

// The lanes.
const (
	Urgent Lane = iota // a client does, whose command goes on with it
	Ahead              // nobody yet: it is read ahead
	Walk               // snapshots and digests
	Move               // compaction
)

// A Fetch asks for the body of a job from where its full record lies.
type Fetch struct {
	ID    uint64
	Place Place
	Turn  uint64 // whose turn it is among the urgent: one number for each client
	Size  uint32 // of the body, in bytes; above 0
	Lane  Lane
}

// Fetched is what has become of a Fetch. The body is valid until the function returns that is
// given it.
type Fetched struct {
	Fetch
	Body []byte
	Err  error // nil, or wraps one of the errors of bodies, ErrFailed or ErrClosed
}

// Errors of bodies.
var (
	// ErrMoved tells that the file is gone, and so the body elsewhere: the owner of the jobs
	// knows the place.
	ErrMoved = errors.New("the body has moved")

	// ErrUnreadable tells that this body is damaged on disk. Others are not.
	ErrUnreadable = errors.New("the body cannot be read")

	// ErrHangs tells that the disk gives nothing at present. It says nothing of the body.
	ErrHangs = errors.New("the disk does not answer")
)
