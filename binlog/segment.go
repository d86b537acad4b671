package binlog

import (
	"strconv"
	"strings"
	"sync/atomic"

	"trellis/binlog/vfs"
)

// segment is one file of the log. The log's mu guards what changes, but for the
// file, which belongs to whom the comment says.
type segment struct {
	header
	start uint32 // checksumStart
	name  string // path
	size  int64  // of the file, allocated

	used   int64 // bytes that were appended, from the file's start on
	sealed bool  // its end record is appended: nothing follows
	jobs   int64 // that have their latest full record here
	live   int64 // bytes of those records
	stuck  bool  // damaged, so that compaction cannot free it

	// named tells that the file's name is durable. A sync of a segment includes
	// that of its name.
	named atomic.Bool

	// file is open from the segment's creation, or Replay, until it is sealed
	// and durable. The writer and the syncer use it before, who trims closes it
	// then.
	file vfs.File
}

const (
	prefix = "trellis."
	digits = 10
)

func segmentName(index uint32) string {
	n := strconv.FormatUint(uint64(index), 10)
	return prefix + strings.Repeat("0", digits-len(n)) + n
}

// segmentIndex is the index in a file's name, or 0 if it is not a segment's.
func segmentIndex(name string) uint32 {
	s, ok := strings.CutPrefix(name, prefix)
	if !ok || len(s) != digits {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// limit is where records must end: the rest is for the end record.
func (s *segment) limit() int64 { return s.size&^7 - smallSize }

// capacity is what an empty segment of that size holds in records.
func capacity(size int64) int64 { return size&^7 - headerSize - smallSize }

// end is the place behind what was appended.
func (s *segment) end() Pos { return s.base + Pos(s.used) }
