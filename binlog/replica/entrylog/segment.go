package entrylog

import (
	"path/filepath"

	"trellis/binlog/vfs"
)

// segment is one file of the log. Header, name and size do not change once the segment
// is in Log.segments, so that readers need no lock for them.
type segment struct {
	header
	name string   // path
	file vfs.File // closed when the segment is removed
	size int64    // of the file
	used int64    // bytes up to the end of the last frame; the writer's
}

// end is the position behind the last frame.
func (s *segment) end() uint64 { return s.pos + uint64(s.used) }

// begin writes the header.
func (s *segment) begin() error {
	b := make([]byte, headerSize)
	s.encode(b)
	_, err := s.file.WriteAt(b, 0)
	s.used = headerSize
	return err
}

func (l *Log) path(index uint32) string { return filepath.Join(l.dir, fileName(index)) }

// create makes the file of a segment and makes its name durable: a frame in it is
// of no use if the name is lost.
func (l *Log) create(index uint32, size int64) (*segment, error) {
	name := l.path(index)
	file, err := l.fs.Create(name, size)
	if err != nil {
		return nil, err
	}
	if err := vfs.SyncDir(l.fs, l.dir); err != nil {
		file.Close()
		return nil, l.fail("sync the directory", err)
	}
	return &segment{header: header{index: index}, name: name, file: file, size: size}, nil
}
