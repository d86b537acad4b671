package inspect

import (
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"

	"trellis/binlog/internal/index"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// Survey is what a first reading of all segments finds out, before anything is
// changed or replayed.
type Survey struct {
	Files []File // that are needed, by index
	Spare []File // that were allocated and never written to; they follow Files
	Stale []File // that a crash kept from being removed

	Segments []File      // what is to be replayed: contiguous, up to the cut, with Used and Sealed
	Deleted  IDSet       // ids that have a delete record in Segments
	Seed     uint32      // the directory's; 0 if no header could be read
	LastID   uint64      // the greatest that Segments tell of
	Synced   journal.Pos // the greatest position that a record calls durable
	Records  int64       // in Segments
	Settings int         // of tubes, at the end of Segments
	Named    uint32      // the oldest segment that is needed, by all that can be read, also behind the cut
	Run      record.Run  // the last one in Segments
	Clean    bool        // Segments end with a stop record
	Cut      *Cut        // not nil: the log does not end where its files do

	Indexes []string // names of the files of indexes, sound or not

	fs     vfs.FS
	dir    string
	oldest uint32          // the same, by what is in Segments only
	set    map[string]bool // tubes that have a setting

	use     bool        // indexes that can be believed
	boot    uint64      // number of the machine's start
	durable journal.Pos // what indexes are of lies before this
}

// File is a segment's file.
type File struct {
	record.Header
	Index  uint32
	Name   string // path
	Size   int64  // bytes
	Wrong  error  // what is wrong with the header
	Used   int64  // bytes from the file's start on that are sound
	Sealed bool   // it has an end record, and so a successor

	Contents *index.Index // what is believed instead of the records; nil: they are to be read

	zero  bool // nothing but zeros, or begun
	begun bool // the first segment, with nothing but zeros behind its first sector
}

// header is the file's, or what is needed of it to read the records behind a wrong one.
func (f *File) header(seed uint32) record.Header {
	if f.Wrong != nil {
		return record.Header{Seed: seed, Index: f.Index}
	}
	return f.Header
}

// Records goes through the file's records and gaps, whatever its header. The directory's
// seed is that of a Survey. The scanner's Err comes after it.
func (f *File) Records(fs vfs.FS, seed uint32, sc *record.Scanner) iter.Seq2[[]byte, *record.Gap] {
	h := f.header(seed)
	return sc.File(fs, f.Name, &h, f.Size)
}

// End is the position behind the last record of a file in Segments.
func (f *File) End() journal.Pos { return f.Base + journal.Pos(f.Used) }

// Cut is where a crash has torn the log.
type Cut struct {
	File   string // path
	Index  uint32 // of the file
	Size   int64  // of the file, bytes
	Offset int64  // in the file
	What   string // what is there instead of a record
	Sound  int64  // records behind it that can be read, and are lost

	pos        journal.Pos
	err        error // of the system, if the bytes could not be read
	impossible bool  // what is there was written so: no crash has torn it
	later      bool  // some of the sound records are in later files
}

func cutAt(f *File, offset int64, pos journal.Pos, what string) *Cut {
	return &Cut{File: f.Name, Index: f.Index, Size: f.Size, Offset: offset, pos: pos, What: what}
}

// Directory reads all segments of a directory. Tell, which may be nil, is told of
// the progress. A *record.DamageError comes with a Survey that a salvage can use, other
// errors without one.
func Directory(fs vfs.FS, dir string, tell func(Progress)) (*Survey, error) {
	return survey(&Survey{fs: fs, dir: dir}, tell)
}

// Indexed is Directory by indexes, where there are some that can be believed. Boot is the number of
// the machine's start.
func Indexed(fs vfs.FS, dir string, boot uint64, tell func(Progress)) (*Survey, error) {
	return survey(&Survey{fs: fs, dir: dir, use: true, boot: boot}, tell)
}

func survey(s *Survey, tell func(Progress)) (*Survey, error) {
	if err := s.find(); err != nil {
		return nil, err
	}
	if len(s.Files) == 0 {
		return s, nil
	}
	err := s.walk(NewMeter("check", s.Bytes(), tell))
	if err != nil && !errors.As(err, new(*record.DamageError)) {
		return nil, err
	}
	return s, err
}

// Bytes is the size of all Files.
func (s *Survey) Bytes() (n int64) {
	for _, f := range s.Files {
		n += f.Size
	}
	return n
}

// find lists the segments and reads their headers.
func (s *Survey) find() error {
	es, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	for _, e := range es {
		if i := record.FileIndex(e.Name); i != 0 && !e.Dir {
			s.Files = append(s.Files, File{Index: i, Name: filepath.Join(s.dir, e.Name), Size: e.Size})
		}
		if indexSeries.Number(e.Name) != 0 && !e.Dir {
			s.Indexes = append(s.Indexes, filepath.Join(s.dir, e.Name))
		}
	}
	slices.SortFunc(s.Files, func(a, b File) int { return int(int64(a.Index) - int64(b.Index)) })
	for i := range s.Files {
		f := &s.Files[i]
		if err := s.readHeader(f); err != nil {
			return err
		}
		if errors.Is(f.Wrong, record.ErrVersion) {
			return fmt.Errorf("%s: %w", f.Name, f.Wrong)
		}
	}
	// Files at the end that are zero were allocated and not used yet.
	for n := len(s.Files); n > 0 && s.Files[n-1].Wrong != nil && s.Files[n-1].zero; n-- {
		if f := s.Files[n-1]; f.begun {
			s.Stale = append(s.Stale, f)
		} else {
			s.Spare = append(s.Spare, f)
		}
		s.Files = s.Files[:n-1]
	}
	slices.Reverse(s.Spare)
	return nil
}

func (s *Survey) readHeader(f *File) error {
	file, err := s.fs.OpenRead(f.Name)
	if err != nil {
		return err
	}
	defer file.Close()
	b := make([]byte, record.HeaderSize)
	n, err := file.ReadAt(b, 0)
	if f.Wrong = f.Header.Decode(b[:n]); f.Wrong == nil {
		if f.Header.Index != f.Index {
			f.Wrong = fmt.Errorf("the header is that of segment %d", f.Header.Index)
		}
		return nil
	}
	if n < len(b) && f.Size >= record.HeaderSize {
		f.Wrong = &record.BadError{What: "the header cannot be read", Err: err}
		return nil
	}
	// A first segment whose creation was cut short has nothing behind its first
	// sector: the sync that makes it count covers more.
	if f.zero = record.Zeros(file, 0, f.Size); !f.zero && f.Index == 1 && len(s.Files) == 1 {
		f.begun = record.Zeros(file, min(512, f.Size), f.Size)
		f.zero = f.begun
	}
	return nil
}

// walk reads the files from the oldest one that has all its successors, or from
// further back if those before a gap are needed too.
func (s *Survey) walk(m *Meter) error {
	var before *File // the last one with a sound header
	for i := range s.Files {
		f := &s.Files[i]
		if f.Wrong != nil {
			continue
		}
		if before != nil && f.Header.Seed != s.Seed {
			// It is no damage, because a salvage could not tell which log is this directory's.
			return fmt.Errorf("%s and %s belong to two logs: move away the files of the one that is not to be used",
				before.Name, f.Name)
		}
		before, s.Seed = f, f.Header.Seed
	}
	var sc record.Scanner
	if s.use && len(s.Indexes) > 0 {
		if err := s.findDurable(&sc); err != nil {
			return err
		}
	}
	for first := len(s.Files) - 1; ; first-- {
		for first > 0 && s.Files[first-1].Index+1 == s.Files[first].Index {
			first--
		}
		*s = Survey{
			fs: s.fs, dir: s.dir, Files: s.Files, Spare: s.Spare, Stale: s.Stale, Seed: s.Seed,
			Indexes: s.Indexes, use: s.use, boot: s.boot, durable: s.durable,
		}
		m.Done = 0
		for i := first; i < len(s.Files); i++ {
			if err := s.read(&s.Files[i], &sc, m); err != nil {
				return err
			}
		}
		if first == 0 || s.oldest >= s.Files[first].Index {
			m.End()
			return s.conclude(first)
		}
	}
}

// read reads one file and adds what it finds.
func (s *Survey) read(f *File, sc *record.Scanner, m *Meter) error {
	h := f.header(s.Seed)
	if f.Wrong != nil {
		if n := len(s.Segments); n > 0 {
			h.Base = s.Segments[n-1].End()
		}
	}
	if s.Cut == nil {
		s.Cut = s.cutBefore(f, &h)
	}
	var seg *File // nil behind the cut
	if s.Cut == nil {
		s.Segments = append(s.Segments, File{Header: h, Index: f.Index, Name: f.Name, Size: f.Size, Used: record.HeaderSize})
		seg = &s.Segments[len(s.Segments)-1]
		s.LastID = max(s.LastID, h.LastID)
		s.Run.Boot, s.Run.Sync = h.Boot, h.Sync
	}
	if f.Wrong == nil {
		s.Synced = max(s.Synced, h.Synced)
		s.noteOldest(h.Oldest)
	}
	if seg != nil && f.Wrong == nil {
		if x := s.believed(f); x != nil && s.readIndex(seg, x) {
			m.Done += f.Size
			return nil
		}
	}
	done := int64(0)
	for b, gap := range sc.File(s.fs, f.Name, &h, f.Size) {
		if gap != nil {
			if s.Cut == nil {
				s.Cut = cutAt(f, gap.Offset, h.Base+journal.Pos(gap.Offset), gap.Err.Error())
				if bad, ok := errors.AsType[*record.BadError](gap.Err); ok {
					s.Cut.err, s.Cut.impossible = bad.Err, bad.Impossible
				}
			}
			continue
		}
		m.Add(sc.Offset() - done)
		done = sc.Offset()
		k := record.KindOf(b)
		s.noteDurable(k, b)
		if s.Cut == nil {
			s.Records++
			s.note(k, b)
			seg.Used, seg.Sealed = sc.Offset(), k == record.End
		} else {
			s.Cut.Sound++
			s.Cut.later = s.Cut.later || f.Index != s.Cut.Index
		}
		if k == record.End {
			break
		}
	}
	m.Done += f.Size - done
	return sc.Err()
}

// cutBefore returns a Cut if the log cannot go on in f, whose header is h, and nil if it can.
func (s *Survey) cutBefore(f *File, h *record.Header) *Cut {
	if f.Wrong != nil && len(s.Segments) == 0 {
		return s.badHeader(f, h)
	}
	if len(s.Segments) == 0 {
		return nil
	}
	last := &s.Segments[len(s.Segments)-1]
	switch {
	case f.Index != last.Index+1:
		missing := File{Index: last.Index + 1, Name: filepath.Join(s.dir, record.FileName(last.Index+1))}
		return cutAt(&missing, 0, last.End(), "the file is missing")
	case f.Wrong != nil:
		return s.badHeader(f, h)
	case !last.Sealed:
		return cutAt(last, last.Used, last.End(), "the segment has no end record, but there is a later segment")
	case last.End() != h.Base:
		return cutAt(f, 0, min(h.Base, last.End()),
			fmt.Sprintf("the segment starts at %d, but the one before ends at %d", h.Base, last.End()))
	}
	return nil
}

func (s *Survey) badHeader(f *File, h *record.Header) *Cut {
	c := cutAt(f, 0, h.Base, f.Wrong.Error())
	c.impossible = errors.Is(f.Wrong, record.ErrDisowned)
	if bad, ok := errors.AsType[*record.BadError](f.Wrong); ok {
		c.err = bad.Err
	}
	return c
}

// noteOldest takes what a header or a drop record says is the oldest segment that is needed.
func (s *Survey) noteOldest(oldest uint32) {
	s.Named = max(s.Named, oldest)
	if s.Cut == nil {
		s.oldest = max(s.oldest, oldest)
	}
}

// noteDurable takes what a record, which may be behind the cut, says of other segments: that
// they are durable, or not needed.
func (s *Survey) noteDurable(k record.Kind, b []byte) {
	switch k {
	case record.Mark, record.Stop:
		s.Synced = max(s.Synced, journal.Pos(record.Number(b)))
	case record.Start:
		var r record.Run
		r.Decode(b)
		s.Synced = max(s.Synced, r.Synced)
	case record.Drop:
		s.noteOldest(uint32(record.Number(b)))
	}
}

// note takes what a record before the cut says.
func (s *Survey) note(k record.Kind, b []byte) {
	s.Clean = k == record.Stop || s.Clean && k == record.End
	s.LastID = max(s.LastID, record.LastID(b))
	switch k {
	case record.Delete:
		s.Deleted.Add(record.Number(b))
	case record.Setting, record.Policy:
		s.noteSetting(record.DecodeSetting(b))
	case record.Start:
		s.Run.Decode(b)
	}
}

func (s *Survey) noteSetting(x journal.Setting) {
	if s.set == nil {
		s.set = map[string]bool{}
	}
	if delete(s.set, x.Tube); !x.IsDefault() {
		s.set[x.Tube] = true
	}
	s.Settings = len(s.set)
}

// conclude decides whether the log is sound, torn or damaged.
func (s *Survey) conclude(first int) error {
	if c := s.Cut; c != nil {
		if what := s.damaged(c); what != "" {
			return &record.DamageError{File: c.File, Offset: c.Offset, What: what, Sound: c.Sound, Err: c.err}
		}
	}
	if m := s.Files[first].Index; s.oldest < m {
		return &record.DamageError{
			File: filepath.Join(s.dir, record.FileName(m-1)),
			What: fmt.Sprintf("the file is missing: the log starts with segment %d, but %d was not removed by compaction yet",
				m, max(s.oldest, 1)),
		}
	}
	for i, f := range s.Files {
		if i < first || f.Index < s.oldest {
			s.Stale = append(s.Stale, f)
		}
	}
	needed := max(s.oldest, s.Files[first].Index)
	s.Files = slices.DeleteFunc(s.Files, func(f File) bool { return f.Index < needed })
	for len(s.Segments) > 0 && s.Segments[0].Index < s.oldest {
		s.Segments = s.Segments[1:]
	}
	return nil
}

// damaged tells what is wrong at a cut that no crash can have made, because what was there
// had been synced. It returns "" for a torn end.
func (s *Survey) damaged(c *Cut) string {
	switch {
	case c.err != nil, c.impossible:
		return c.What
	case s.Synced > c.pos:
		return c.What + "; it was on disk for certain"
	case len(s.Segments) == 0:
		return c.What
	case s.Run.Sync == record.SyncNever && c.later:
		// Without syncs nothing is certain, so that all of the log would count as
		// its torn end.
		return c.What + "; later segments are sound"
	}
	return ""
}
