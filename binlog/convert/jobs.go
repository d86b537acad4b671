package convert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"trellis/binlog/inspect"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/sealed"
	"trellis/binlog/vfs"
)

// jobs are what is alive in a log that is turned into another one: each job's last
// state, and where its body is; and the settings.
type jobs struct {
	fs     vfs.FS
	files  []string // paths
	byID   map[uint64]*job
	lastID uint64 // the greatest id that the files tell of

	settings map[string]journal.Setting // by tube
}

type job struct {
	journal.Record        // without the body
	file           int32  // index in files
	size           int32  // of the body, bytes
	body           int64  // where it starts in the file
	burial         uint64 // the number of the record that told of the last burial; of beanstalkd's jobs
}

// sorted returns the jobs in the order in which their bodies lie in the files.
func (js *jobs) sorted() []*job {
	return slices.SortedFunc(maps.Values(js.byID), func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.body, b.body))
	})
}

// each calls fn with each job and its body, in the given order. The record is valid
// during the call.
func (js *jobs) each(order []*job, fn func(*journal.Record) error) (err error) {
	open := int32(-1)
	var file vfs.File
	defer func() {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	var body []byte
	for _, j := range order {
		if j.file != open {
			if file != nil {
				if err := file.Close(); err != nil {
					return err
				}
			}
			if file, err = js.fs.OpenRead(js.files[j.file]); err != nil {
				return err
			}
			open = j.file
		}
		if cap(body) < int(j.size) {
			body = make([]byte, j.size)
		}
		body = body[:j.size]
		if n, err := file.ReadAt(body, j.body); n < len(body) {
			return fmt.Errorf("%s: body of job %d: %w", js.files[j.file], j.ID, err)
		}
		r := j.Record
		r.Body = body
		if err := fn(&r); err != nil {
			return err
		}
	}
	return nil
}

// write writes all jobs and settings to a new log, and closes it.
func (js *jobs) write(w *sealed.Writer) error {
	err := js.each(js.sorted(), func(r *journal.Record) error { return writeJob(w, r) })
	for _, tube := range slices.Sorted(maps.Keys(js.settings)) {
		if err == nil {
			s := js.settings[tube]
			err = writeSetting(w, &s)
		}
	}
	if err != nil {
		return err
	}
	return w.Close()
}

func writeJob(w *sealed.Writer, r *journal.Record) error {
	if !record.Valid(r) {
		return fmt.Errorf("job %d: a body of %d bytes: %w", r.ID, len(r.Body), record.ErrInvalid)
	}
	b, salt, err := w.Place(r.Size())
	if err == nil {
		record.EncodeFull(b, salt, r)
	}
	return err
}

func writeSetting(w *sealed.Writer, s *journal.Setting) error {
	b, salt, err := w.Place(record.SettingSize(s))
	if err == nil {
		record.EncodeSetting(b, salt, s)
	}
	return err
}

// readSegments reads the sound records of segments. It returns how many bytes it has
// skipped because they were not sound, and how many jobs are lost: they have an update
// left, but no full record.
func readSegments(
	fs vfs.FS, files []inspect.File, seed uint32, m *inspect.Meter,
) (js *jobs, skipped, lost int64, err error) {
	js = &jobs{fs: fs, byID: map[uint64]*job{}, settings: map[string]journal.Setting{}}
	var (
		deleted inspect.IDSet
		orphans = map[uint64]bool{}
		sc      record.Scanner
		names   record.Names
	)
	for i, f := range files {
		js.files = append(js.files, f.Name)
		if f.Wrong == nil {
			js.lastID = max(js.lastID, f.Header.LastID)
		}
		for b, gap := range f.Records(fs, seed, &sc) {
			if gap != nil {
				skipped += gap.Size
				continue
			}
			m.Add(int64(len(b)))
			js.lastID = max(js.lastID, record.LastID(b))
			id := record.Number(b)
			switch record.KindOf(b) {
			case record.Full:
				if deleted.Has(id) {
					continue
				}
				delete(orphans, id)
				j := &job{file: int32(i)}
				record.DecodeFull(b, &j.Record, &names)
				j.size = int32(len(j.Body))
				j.body = sc.Offset() - int64(len(b)) + int64(record.BodyOffset(b))
				j.Body = nil
				js.byID[id] = j
			case record.Update:
				j := js.byID[id]
				if j == nil {
					if !deleted.Has(id) {
						orphans[id] = true
					}
					continue
				}
				was := j.Record
				record.DecodeUpdate(b, &j.Record)
				if j.State == journal.Stays {
					j.State, j.Due, j.BuryOrder = was.State, was.Due, was.BuryOrder
				}
				j.Tube, j.TTR, j.Created, j.Keys = was.Tube, was.TTR, was.Created, was.Keys
			case record.Hold:
				if j := js.byID[id]; j != nil { // nobody has it any more
					j.State, j.Due, j.BuryOrder = journal.Ready, 0, 0
					j.Reserves = record.DecodeHold(b).Reserves
				}
			case record.Setting, record.Policy:
				s := record.DecodeSetting(b)
				if delete(js.settings, s.Tube); !s.IsDefault() {
					js.settings[s.Tube] = s
				}
			case record.Delete:
				deleted.Add(id)
				delete(js.byID, id)
				delete(orphans, id)
			}
		}
		if err := sc.Err(); err != nil {
			return nil, 0, 0, err
		}
	}
	m.End()
	return js, skipped, int64(len(orphans)), nil
}
