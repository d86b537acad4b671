package binlog

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"trellis/binlog/vfs"
)

// survey is what a first reading of all segments finds out, before anything is
// changed or told to anybody.
type survey struct {
	fs  vfs.FS
	dir string

	files []segmentFile // all, by index; without the spares
	spare []segmentFile // files that were never written to, behind the others
	stale []segmentFile // files that a crash kept from being removed

	segs    []*segment // what is to be replayed: contiguous, up to the cut
	deleted idSet      // ids that have a delete record in segs
	seed    uint32
	lastID  uint64
	synced  Pos // the greatest place that a record calls durable
	records int64

	oldest uint32 // the oldest segment that is needed, as segs say
	named  uint32 // the same as all say that can be read, the cut's other side too

	run   startRecord // the last one in segs
	clean bool        // segs ends with a stop record

	cut *cut // not nil: the log does not end where its files do
}

// cut is the place where a crash has torn the log.
type cut struct {
	file    segmentFile
	offset  int64
	pos     Pos
	what    string
	err     error // of the system, if the place could not be read
	written bool  // what is there was written so: no crash has torn it
	sound   int64 // records behind the place that can be read
	later   bool  // some of them are in later files
}

type segmentFile struct {
	index uint32
	name  string // path
	size  int64

	header header
	wrong  string // what is wrong with the header
	zero   bool   // nothing but zeros
	begun  bool   // but for its start
}

// meter calls Options.Progress.
type meter struct {
	Progress
	call func(Progress)
	next time.Time
}

func (m *meter) add(n int64) {
	m.Done += n
	m.Records++
	if m.Records&0x3fff == 0 {
		m.tell(false)
	}
}

func (m *meter) tell(last bool) {
	if m.call == nil {
		return
	}
	if now := time.Now(); last || now.After(m.next) {
		if !m.next.IsZero() || last {
			m.call(m.Progress)
		}
		m.next = now.Add(time.Second)
	}
}

// inspect reads all segments of a directory. A *DamageError comes with a survey
// that salvage can use.
func inspect(fs vfs.FS, dir string, progress func(Progress)) (*survey, error) {
	s := &survey{fs: fs, dir: dir}
	if err := s.find(); err != nil {
		return nil, err
	}
	if len(s.files) == 0 {
		return s, nil
	}
	return s, s.walk(&meter{Progress: Progress{Phase: "check", Total: s.bytes()}, call: progress})
}

func (s *survey) bytes() (n int64) {
	for _, f := range s.files {
		n += f.size
	}
	return n
}

// find lists the segments and reads their headers.
func (s *survey) find() error {
	es, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	for _, e := range es {
		if i := segmentIndex(e.Name); i != 0 && !e.Dir {
			s.files = append(s.files, segmentFile{index: i, name: filepath.Join(s.dir, e.Name), size: e.Size})
		}
	}
	slices.SortFunc(s.files, func(a, b segmentFile) int { return int(int64(a.index) - int64(b.index)) })
	for i := range s.files {
		if err := s.readHeader(&s.files[i]); err != nil {
			return err
		}
		if f := s.files[i]; f.wrong == unknownVersion {
			return fmt.Errorf("%s: %s", f.name, f.wrong)
		}
	}
	// Files at the end that are zero were allocated and not used yet.
	for n := len(s.files); n > 0 && s.files[n-1].wrong != "" && s.files[n-1].zero; n-- {
		if f := s.files[n-1]; f.begun {
			s.stale = append(s.stale, f)
		} else {
			s.spare = append(s.spare, f)
		}
		s.files = s.files[:n-1]
	}
	slices.Reverse(s.spare)
	return nil
}

func (s *survey) readHeader(f *segmentFile) error {
	file, err := s.fs.OpenRead(f.name)
	if err != nil {
		return err
	}
	defer file.Close()
	b := make([]byte, headerSize)
	n, err := file.ReadAt(b, 0)
	if f.wrong = f.header.decode(b[:n]); f.wrong == "" {
		if f.header.index != f.index {
			f.wrong = fmt.Sprintf("the header is that of segment %d", f.header.index)
		}
		return nil
	}
	if n < len(b) && f.size >= headerSize {
		f.wrong = fmt.Sprintf("the header cannot be read: %v", err)
		return nil
	}
	// A first segment whose creation was cut short has nothing behind its first
	// sector: the sync that makes it count covers more.
	sc := scanner{f: file, size: f.size}
	if f.zero = sc.zeros(); !f.zero && f.index == 1 && len(s.files) == 1 {
		sc.off = min(512, f.size)
		f.begun = sc.zeros()
		f.zero = f.begun
	}
	return nil
}

// walk reads the files from the oldest one that has all its successors, or from
// further back if those before a gap are needed too.
func (s *survey) walk(m *meter) error {
	for _, f := range s.files {
		if f.wrong == "" {
			if s.seed != 0 && s.seed != f.header.seed {
				return &DamageError{File: f.name, What: "this segment belongs to another directory"}
			}
			s.seed = f.header.seed
		}
	}
	var sc scanner
	for first := len(s.files) - 1; ; first-- {
		for first > 0 && s.files[first-1].index+1 == s.files[first].index {
			first--
		}
		*s = survey{fs: s.fs, dir: s.dir, files: s.files, spare: s.spare, stale: s.stale, seed: s.seed}
		m.Done = 0
		for i := first; i < len(s.files); i++ {
			if err := s.read(&s.files[i], &sc, m); err != nil {
				return err
			}
		}
		if first == 0 || s.oldest >= s.files[first].index {
			m.tell(true)
			return s.judge(first)
		}
	}
}

// read reads one file and adds what it finds.
func (s *survey) read(f *segmentFile, sc *scanner, m *meter) error {
	file, err := s.fs.OpenRead(f.name)
	if err != nil {
		return err
	}
	defer file.Close()

	h := f.header
	if f.wrong != "" {
		h = header{seed: s.seed, index: f.index}
		if n := len(s.segs); n > 0 {
			h.base = s.segs[n-1].end()
		}
	}
	seg := &segment{header: h, start: checksumStart(h.seed, h.index), name: f.name, size: f.size, used: headerSize}
	if s.cut == nil {
		n := len(s.segs)
		switch {
		case n > 0 && f.index != s.segs[n-1].index+1:
			missing := s.segs[n-1].index + 1
			s.cut = &cut{file: segmentFile{index: missing, name: filepath.Join(s.dir, segmentName(missing))}, pos: s.segs[n-1].end(), what: "the file is missing"}
		case f.wrong != "":
			s.cut = &cut{file: *f, pos: h.base, what: f.wrong, written: f.wrong == futureOldest}
		case n > 0 && !s.segs[n-1].sealed:
			// The file before has lost its end.
			last := s.segs[n-1]
			s.cut = &cut{file: s.files[slices.IndexFunc(s.files, func(f segmentFile) bool { return f.index == last.index })], offset: last.used, pos: last.end(), what: "the segment has no end record, but there is a later segment"}
		case n > 0 && s.segs[n-1].end() != h.base:
			s.cut = &cut{file: *f, pos: min(h.base, s.segs[n-1].end()), what: fmt.Sprintf("the segment starts at %d, but the one before ends at %d", h.base, s.segs[n-1].end())}
		}
	}
	if s.cut == nil {
		s.segs = append(s.segs, seg)
		s.lastID = max(s.lastID, h.lastID)
		s.run.boot, s.run.interval = h.boot, h.interval
	}
	if f.wrong == "" {
		s.synced = max(s.synced, h.synced)
		s.drop(h.oldest)
	}
	sc.reset(file, &h, f.size)
	done := int64(0)
	for b, gap := range sc.records() {
		if gap != nil {
			if s.cut == nil {
				c := &cut{file: *f, offset: gap.at, pos: h.base + Pos(gap.at), what: gap.err.Error()}
				var bad *errBad
				if errors.As(gap.err, &bad) {
					c.err, c.written = bad.err, bad.written
				}
				s.cut = c
			}
			continue
		}
		m.add(sc.off - done)
		done = sc.off
		k := kindOf(b)
		switch k {
		case kindMark, kindStop:
			s.synced = max(s.synced, Pos(valueOf(b)))
		case kindStart:
			var r startRecord
			r.decode(b)
			s.synced = max(s.synced, r.synced)
		case kindDrop:
			s.drop(uint32(valueOf(b)))
		}
		if s.cut == nil {
			s.records++
			s.note(b)
			seg.used, seg.sealed = sc.off, k == kindEnd
		} else {
			s.cut.sound++
			s.cut.later = s.cut.later || f.index != s.cut.file.index
		}
		if k == kindEnd {
			break
		}
	}
	m.Done += f.size - done
	return nil
}

// drop takes what a header or a drop record says.
func (s *survey) drop(oldest uint32) {
	s.named = max(s.named, oldest)
	if s.cut == nil {
		s.oldest = max(s.oldest, oldest)
	}
}

// note takes what a record before the cut says.
func (s *survey) note(b []byte) {
	k := kindOf(b)
	s.clean = k == kindStop || s.clean && k == kindEnd
	switch k {
	case kindFull:
		s.lastID = max(s.lastID, valueOf(b))
	case kindDelete:
		id := valueOf(b)
		s.lastID = max(s.lastID, id)
		s.deleted.add(id)
	case kindStart:
		s.run.decode(b)
		s.lastID = max(s.lastID, max(s.run.nextID, 1)-1)
	case kindEnd:
		s.lastID = max(s.lastID, valueOf(b))
	}
}

// judge decides whether the log is sound, torn or damaged.
func (s *survey) judge(first int) error {
	if c := s.cut; c != nil {
		if what := s.damaged(c); what != "" {
			return &DamageError{File: c.file.name, Offset: c.offset, What: what, Sound: c.sound, Err: c.err}
		}
	}
	if m := s.files[first].index; s.oldest < m {
		return &DamageError{
			File: filepath.Join(s.dir, segmentName(m-1)),
			What: fmt.Sprintf("the file is missing: the log starts with segment %d, but %d was not removed by compaction yet", m, max(s.oldest, 1)),
		}
	}
	for i, f := range s.files {
		if i < first || f.index < s.oldest {
			s.stale = append(s.stale, f)
		}
	}
	needed := max(s.oldest, s.files[first].index)
	s.files = slices.DeleteFunc(s.files, func(f segmentFile) bool { return f.index < needed })
	for len(s.segs) > 0 && s.segs[0].index < s.oldest {
		s.segs = s.segs[1:]
	}
	return nil
}

// damaged tells a place where synced data is lost from the torn end that a crash
// leaves.
func (s *survey) damaged(c *cut) string {
	switch {
	case c.err != nil, c.written:
		return c.what
	case s.synced > c.pos:
		return c.what + "; it was on disk for certain"
	case len(s.segs) == 0:
		return c.what
	case s.run.interval < 0 && c.later:
		// Without syncs nothing is certain, so that all of the log would count as
		// its torn end.
		return c.what + "; later segments are sound"
	}
	return ""
}
