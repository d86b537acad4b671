package inspect

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// Verify reads all of the log in a directory, changes nothing, and writes what it
// has found, for people to read. It returns a *record.DamageError if a server
// would not start on it. It may be used while a server runs: what looks wrong is
// read again.
func Verify(w io.Writer, fs vfs.FS, dir string) error {
	s, err := live(fs, dir)
	if s == nil {
		return err
	}
	lines := printer{w: w}
	if len(s.Files) == 0 {
		lines.print("no log\n")
		return lines.err
	}
	for _, seg := range s.Segments {
		state := "open"
		if seg.Sealed {
			state = "sealed"
		}
		lines.print("%s: %s, %d bytes from %d on, begun %s\n", filepath.Base(seg.Name), state, seg.Used, seg.Base,
			time.Unix(0, seg.Created).UTC().Format(time.RFC3339))
	}
	for _, f := range s.Spare {
		lines.print("%s: spare\n", filepath.Base(f.Name))
	}
	for _, f := range s.Stale {
		lines.print("%s: not needed any more\n", filepath.Base(f.Name))
	}
	lines.print("%d sound records, last id %d, on disk for certain up to %d\n", s.Records, s.LastID, s.Synced)
	if s.Settings > 0 {
		lines.print("%d settings of tubes\n", s.Settings)
	}
	wrong := s.verifyIndexes(&lines)
	if err != nil {
		lines.print("DAMAGED: %v\n", err)
		return errors.Join(err, wrong, lines.err)
	}
	switch c := s.Cut; {
	case c != nil:
		lines.print("%s: offset %d: the end is torn: %s; a server will cut it off", filepath.Base(c.File), c.Offset, c.What)
		if c.Sound > 0 {
			lines.print(", with %d records behind it", c.Sound)
		}
		lines.print("\n")
	case s.Clean:
		lines.print("the last server ended in good order\n")
	default:
		lines.print("a server is running or was killed\n")
	}
	return errors.Join(wrong, lines.err)
}

// live is Directory for a directory that a server may be changing. The server
// writes what was read as zeros a moment ago, and removes what was listed, so that
// only what is wrong twice is wrong.
func live(fs vfs.FS, dir string) (s *Survey, err error) {
	wrong := ""
	for range 10 {
		s, err = Directory(fs, dir, nil)
		was := wrong
		if damage := (*record.DamageError)(nil); errors.As(err, &damage) {
			wrong = fmt.Sprint(damage.File, damage.Offset)
		} else if err != nil {
			wrong = err.Error()
		}
		if err == nil || wrong == was {
			return s, err
		}
	}
	return nil, fmt.Errorf("log directory %s: it changes faster than it can be read: %v", dir, err)
}

// printer writes text and keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) print(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
