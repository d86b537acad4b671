package binlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"trellis/binlog/vfs"
)

// Verify reads all of the log in a directory, changes nothing, and writes what it
// has found, for people to read. It returns a *DamageError if a server would not
// start on it. It may be used while a server runs: what looks wrong is read
// again.
func Verify(w io.Writer, dir string) error { return verify(w, vfs.OS{}, dir) }

func verify(w io.Writer, fs vfs.FS, dir string) error {
	var lines printer
	lines.w = w
	es, err := fs.List(dir)
	if err != nil {
		return err
	}
	if numbers, _, mixed := foreignFiles(es); len(numbers) > 0 && !mixed {
		_, r, err := gatherForeign(fs, dir, numbers, false, &meter{})
		if err != nil {
			return err
		}
		lines.print("a log of beanstalkd's, which a server will import\n")
		lines.print("%d files, %d tubes, %d ready, %d delayed and %d buried jobs with %d bytes, last id %d\n",
			r.Files, r.Tubes, r.Ready, r.Delayed, r.Buried, r.Bytes, r.LastID)
		for _, n := range r.Notes {
			lines.print("%s\n", n)
		}
		return lines.err
	}
	s, err := inspectLive(fs, dir)
	if s == nil {
		return err
	}
	if len(s.files) == 0 {
		lines.print("no log\n")
		return lines.err
	}
	for _, seg := range s.segs {
		state := "open"
		if seg.sealed {
			state = "sealed"
		}
		lines.print("%s: %s, %d bytes from %d on, begun %s\n", filepath.Base(seg.name), state, seg.used, seg.base,
			time.Unix(0, seg.created).UTC().Format(time.RFC3339))
	}
	for _, f := range s.spare {
		lines.print("%s: spare\n", filepath.Base(f.name))
	}
	for _, f := range s.stale {
		lines.print("%s: not needed any more\n", filepath.Base(f.name))
	}
	lines.print("%d sound records, last id %d, on disk for certain up to %d\n", s.records, s.lastID, s.synced)
	if err != nil {
		lines.print("DAMAGED: %v\n", err)
		return errors.Join(err, lines.err)
	}
	switch c := s.cut; {
	case c != nil:
		lines.print("%s: offset %d: the end is torn: %s; a server will cut it off", filepath.Base(c.file.name), c.offset, c.what)
		if c.sound > 0 {
			lines.print(", with %d records behind it", c.sound)
		}
		lines.print("\n")
	case s.clean:
		lines.print("the last server ended in good order\n")
	default:
		lines.print("a server is running or was killed\n")
	}
	return lines.err
}

// inspectLive is inspect for a directory that a server may be changing. It writes
// what was read as zeros a moment ago, and removes what was listed: so that only
// what is wrong twice is wrong.
func inspectLive(fs vfs.FS, dir string) (s *survey, err error) {
	wrong := ""
	for range 10 {
		s, err = inspect(fs, dir, nil)
		was := wrong
		if damage := (*DamageError)(nil); errors.As(err, &damage) {
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

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) print(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// Dump writes every record of the log in a directory as a line of text, in the
// order of the log, and every place that holds none. With bodies it writes all of
// them, quoted. It may be used while a server runs.
func Dump(w io.Writer, dir string, bodies bool) error { return dump(w, vfs.OS{}, dir, bodies) }

func dump(w io.Writer, fs vfs.FS, dir string, bodies bool) error {
	s := &survey{fs: fs, dir: dir}
	if err := s.find(); err != nil {
		return err
	}
	if len(s.files) == 0 {
		return fmt.Errorf("log directory %s: there is no log", dir)
	}
	for _, f := range s.files {
		if f.wrong == "" {
			s.seed = f.header.seed
		}
	}
	d := &dumper{printer: printer{w: w}, bodies: bodies}
	for _, f := range s.files {
		err := d.segment(fs, f, s.seed)
		if errors.Is(err, os.ErrNotExist) {
			continue // compaction has removed it since
		}
		if err != nil {
			return err
		}
	}
	return d.err
}

type dumper struct {
	printer
	bodies bool
	sc     scanner
	tubes  names
}

func (d *dumper) segment(fs vfs.FS, f segmentFile, seed uint32) (err error) {
	file, err := fs.OpenRead(f.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	name := filepath.Base(f.name)
	h := f.header
	if f.wrong == "" {
		d.print("%s 0 header base=%d synced=%d oldest=%d last-id=%d created=%s boot=%016x interval=%d\n", name,
			h.base, h.synced, h.oldest, h.lastID, stamp(h.created), h.boot, h.interval)
	} else {
		d.print("%s 0 BAD %s\n", name, f.wrong)
		h = header{seed: seed, index: f.index}
	}
	sc := &d.sc
	sc.reset(file, &h, f.size)
	for b, gap := range sc.records() {
		if gap != nil {
			d.print("%s %d BAD %v: %d bytes\n", name, gap.at, gap.err, gap.n)
		} else {
			d.print("%s %d %s ", name, sc.off-int64(len(b)), kindOf(b))
			d.record(b)
		}
		if d.err != nil {
			break
		}
	}
	return nil
}

func (d *dumper) record(b []byte) {
	var r Record
	switch kindOf(b) {
	case kindFull:
		decodeFull(b, &r, &d.tubes)
		d.state(&r)
		d.print(" tube=%s ttr=%d created=%s bytes=%d", r.Tube, r.TTR, stamp(r.Created), len(r.Body))
		if d.bodies {
			d.print(" body=%q", r.Body)
		}
		d.print("\n")
	case kindUpdate:
		decodeUpdate(b, &r)
		d.state(&r)
		d.print("\n")
	case kindDelete:
		d.print("id=%d\n", valueOf(b))
	case kindMark, kindStop:
		d.print("synced=%d\n", valueOf(b))
	case kindDrop:
		d.print("oldest=%d\n", valueOf(b))
	case kindEnd:
		d.print("last-id=%d\n", valueOf(b))
	case kindStart:
		var s startRecord
		s.decode(b)
		d.print("at=%s boot=%016x next-id=%d synced=%d interval=%d\n", stamp(s.at), s.boot, s.nextID, s.synced, s.interval)
	}
}

func (d *dumper) state(r *Record) {
	d.print("id=%d %s pri=%d delay=%d", r.ID, r.State, r.Pri, r.Delay)
	switch r.State {
	case Delayed:
		d.print(" due=%s", stamp(r.Due))
	case Buried:
		d.print(" order=%d", r.BuryOrder)
	}
	d.print(" reserves=%d timeouts=%d releases=%d buries=%d kicks=%d", r.Reserves, r.Timeouts, r.Releases, r.Buries, r.Kicks)
}

func stamp(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }
