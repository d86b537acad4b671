package offline

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"trellis/binlog/inspect"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/spill"
	"trellis/binlog/vfs"
)

// Verify reads the current snapshot and the body files of a member whose directory has body files, changes nothing, and
// writes what it has found, for people to read. mine is false if the directory has none. It returns a
// *record.DamageError if the snapshot is damaged, or a body file of which all was on disk. It may be used while the
// member runs: what looks wrong is read again.
func Verify(w io.Writer, fsys vfs.FS, dir string) (mine bool, err error) {
	if mine, err = hasBodies(fsys, dir); !mine || err != nil {
		return mine, err
	}
	v := verifier{fs: fsys, dir: dir}
	for range 10 {
		was := fmt.Sprint(v.wrong)
		v = verifier{fs: fsys, dir: dir}
		err := v.all()
		v.wrong = cmp.Or(err, v.wrong)
		if v.wrong == nil || fmt.Sprint(v.wrong) == was {
			_, err = v.text.WriteTo(w)
			return true, errors.Join(v.wrong, err)
		}
	}
	return true, fmt.Errorf("directory %s: it changes faster than it can be read: %w", dir, v.wrong)
}

// hasBodies reports whether a directory has that of the body files.
func hasBodies(fsys vfs.FS, dir string) (bool, error) {
	es, err := fsys.List(dir)
	return slices.ContainsFunc(es, func(e vfs.Entry) bool { return e.Dir && e.Name == bodiesDir }), err
}

// verifier is one reading of a member's directory.
type verifier struct {
	fs    vfs.FS
	dir   string
	text  bytes.Buffer
	wrong error // the first damage
}

func (v *verifier) print(format string, args ...any) { fmt.Fprintf(&v.text, format, args...) }

// note writes what is damaged, and returns other errors.
func (v *verifier) note(err error) error {
	if !errors.As(err, new(*record.DamageError)) {
		return err
	}
	v.wrong = cmp.Or(v.wrong, err)
	v.print("DAMAGED: %v\n", err)
	return nil
}

// all reads everything. Its error is not of damage.
func (v *verifier) all() error {
	meta, path, err := snapshot.Find(v.fs, filepath.Join(v.dir, snapshotsDir))
	if err == nil {
		err = v.snapshot(&meta, path)
	} else if errors.Is(err, snapshot.ErrNone) {
		v.print("no snapshot\n")
		err = nil
	}
	if err := v.note(err); err != nil {
		return err
	}
	es, err := v.fs.List(filepath.Join(v.dir, bodiesDir))
	if err != nil {
		return err
	}
	for _, e := range es {
		if n := record.FileIndex(e.Name); n != 0 {
			if err := v.bodies(n, &meta); err != nil {
				return err
			}
		}
	}
	return nil
}

// snapshot reads the snapshot, and each body that it refers to at its place.
func (v *verifier) snapshot(m *snapshot.Meta, path string) (err error) {
	p := places{bodies: spill.NewReader(v.fs, filepath.Join(v.dir, bodiesDir), m.Files), lost: v.note}
	defer func() { err = errors.Join(err, p.bodies.Close()) }()
	if err := snapshot.Load(v.fs, path, &p, nil); err != nil {
		return err
	}
	v.print("snapshot %s: %d records in %d bytes, %d jobs with their bodies in %d body files\n", filepath.Base(path),
		m.Records, m.Bytes, p.jobs, len(m.Files))
	return nil
}

// bodies reads a body file, which may be in the snapshot's list.
func (v *verifier) bodies(number uint32, m *snapshot.Meta) error {
	c, err := spill.Read(v.fs, filepath.Join(v.dir, bodiesDir), number)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // compaction has removed it since
	}
	if err != nil {
		return err
	}
	i := slices.IndexFunc(m.Files, func(f spill.File) bool { return f.Number == number })
	name := filepath.Join(bodiesDir, record.FileName(number))
	v.print("%s: ", name)
	switch listed := i >= 0; {
	case listed && c.Sealed:
		v.print("sealed, in the snapshot")
	case c.Sealed:
		v.print("sealed, not in the snapshot")
	case listed:
		v.print("in the snapshot, without an end record")
	default:
		v.print("open, or given up")
	}
	v.print(", %d bytes, %d bodies\n", c.Size, c.Records)
	if i < 0 && !c.Sealed {
		return nil // what is wrong may be written now, or was not when the power went
	}
	for _, d := range c.Wrong {
		err = v.note(d)
	}
	if i >= 0 && len(c.Wrong) == 0 && (c.File != m.Files[i] || !c.Sealed) {
		at := min(c.Size, m.Files[i].Size)
		what := "it is not the file that the snapshot names"
		err = v.note(&record.DamageError{File: filepath.Join(v.dir, name), Offset: at, What: what})
	}
	return err
}

// places is a Standby that looks whether the bodies of jobs are where they should be.
type places struct {
	bodies *spill.Reader
	lost   func(error) error // is told the error of each that cannot be read, and returns why to end
	jobs   int
}

// Full implements snapshot.Standby.
func (p *places) Full(r *journal.Record, _ journal.Place) (f journal.Former, err error) {
	if r.Absent == nil {
		return f, nil
	}
	p.jobs++
	_, err = p.bodies.Body(r.Absent)
	return f, p.lost(err)
}

// Update implements snapshot.Standby.
func (p *places) Update(*journal.Record) error { return nil }

// Delete implements snapshot.Standby.
func (p *places) Delete(uint64) uint32 { return 0 }

// Setting implements snapshot.Standby.
func (p *places) Setting(*journal.Setting) error { return nil }

// Hold implements snapshot.Standby.
func (p *places) Hold(*journal.Hold) error { return nil }

// Close implements snapshot.Standby.
func (p *places) Close(uint64) error { return nil }

// Numbers implements snapshot.Standby.
func (p *places) Numbers(*journal.Numbers) error { return nil }

// Dump writes the records of the current snapshot and of the body files of a member whose directory has body files, as
// inspect.Dump does, and the jobs that have their bodies there. mine is false if the directory has none.
func Dump(w io.Writer, fsys vfs.FS, dir string, bodies bool) (mine bool, err error) {
	if mine, err = hasBodies(fsys, dir); !mine || err != nil {
		return mine, err
	}
	m, path, err := snapshot.Find(fsys, filepath.Join(dir, snapshotsDir))
	if errors.Is(err, snapshot.ErrNone) {
		err = nil
	}
	var parts []string
	if path != "" {
		parts = []string{filepath.Join(snapshotsDir, filepath.Base(path))}
	}
	if len(m.Files) > 0 {
		err = inspect.DumpIndex(w, fsys, dir, filepath.Join(parts[0], snapshot.JobsName), &snapshot.JobsHeader)
	}
	for _, part := range append(parts, bodiesDir) {
		_, e := inspect.DumpPart(w, fsys, dir, part, bodies)
		err = errors.Join(err, e)
	}
	return true, err
}
