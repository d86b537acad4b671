package binlog

import (
	"sync/atomic"

	"trellis/binlog/inspect"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// segment is one file of the log. The log's mu guards the fields that change,
// except file.
type segment struct {
	record.Header
	salt record.Salt
	name string // path
	size int64  // of the file, allocated

	used   int64 // bytes that were appended, from the file's start on
	sealed bool  // its end record is appended: nothing follows
	kept   int64 // jobs that have their latest full record here, and latest settings
	live   int64 // bytes of those records
	stuck  bool  // damaged, so that compaction cannot free it

	// named tells that the file's name is durable. A sync of a segment includes
	// that of its name.
	named atomic.Bool

	// file is open from the segment's creation, or Start, until the segment is
	// sealed and durable. Until then writes and syncs use it; then it is trimmed
	// and closed under trimMu, and nil.
	file vfs.File
}

func newSegment(s *inspect.Segment) *segment {
	return &segment{Header: s.Header, salt: s.Salt(), name: s.Name, size: s.Size, used: s.Used, sealed: s.Sealed}
}

// limit is where records must end: the rest is for the end record.
func (s *segment) limit() int64 { return s.size&^7 - record.SmallSize }

// capacity is what an empty segment of that size holds in records.
func capacity(size int64) int64 { return size&^7 - record.HeaderSize - record.SmallSize }

// end is the place behind what was appended.
func (s *segment) end() Pos { return s.Base + Pos(s.used) }
