package snapshot

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"
	"slices"
	"strings"

	"trellis/binlog/vfs"
)

const (
	pointerMagic = "TRELCUR\n"
	pointerSize  = 40
)

// pointer names the current snapshot.
type pointer struct {
	index, term uint64
	sum         uint32 // checksum of the snapshot's description
}

func (p *pointer) encode() []byte {
	b := make([]byte, pointerSize)
	copy(b, pointerMagic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[12:], p.sum)
	le.PutUint64(b[16:], p.index)
	le.PutUint64(b[24:], p.term)
	le.PutUint32(b[36:], sum(0, b[:36]))
	return b
}

// decode reads an encoded pointer, or tells what is wrong with it.
func (p *pointer) decode(b []byte) error {
	switch {
	case len(b) != pointerSize:
		return fmt.Errorf("the file has %d bytes, not %d", len(b), pointerSize)
	case string(b[:8]) != pointerMagic:
		return errors.New("not the pointer to a snapshot")
	case sum(0, b[:36]) != le.Uint32(b[36:]):
		return errors.New("the checksum is wrong")
	case le.Uint32(b[8:]) != formatVersion:
		return ErrVersion
	case le.Uint32(b[32:]) != 0 || le.Uint64(b[16:]) == 0 || le.Uint64(b[24:]) == 0:
		return errors.New("impossible fields")
	}
	*p = pointer{le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint32(b[12:])}
	return nil
}

func readPointer(fs vfs.FS, dir string) (pointer, error) {
	name := filepath.Join(dir, pointerName)
	b, err := readFile(fs, name, pointerSize)
	if errors.Is(err, iofs.ErrNotExist) {
		return pointer{}, ErrNone
	}
	if err != nil {
		return pointer{}, err
	}
	var p pointer
	if err := p.decode(b); errors.Is(err, ErrVersion) {
		return pointer{}, fmt.Errorf("%s: %w", name, err)
	} else if err != nil {
		return pointer{}, &DamageError{File: name, What: err.Error()}
	}
	return p, nil
}

// Current returns the description and the path of the current snapshot, or ErrNone. It
// is for a node that starts: it removes what a crash has left of snapshots that were
// being written, received or removed, and those that are not the current one. Damage
// keeps it from removing anything. The segments are not read: Load does that.
func Current(fs vfs.FS, dir string) (m Meta, path string, err error) {
	m, path, err = Find(fs, dir)
	if err != nil && !errors.Is(err, ErrNone) {
		return Meta{}, "", err
	}
	keep := ""
	if err == nil {
		keep = filepath.Base(path)
	}
	if e := tidy(fs, dir, keep); e != nil {
		return Meta{}, "", fmt.Errorf("remove what is left of snapshots in %s: %w", dir, e)
	}
	return m, path, err
}

// Find returns what Current does, and changes nothing.
func Find(fs vfs.FS, dir string) (m Meta, path string, err error) {
	if m, path, err = current(fs, dir); err != nil && !errors.Is(err, ErrNone) {
		err = fmt.Errorf("current snapshot in %s: %w", dir, err)
	}
	return m, path, err
}

func current(fs vfs.FS, dir string) (Meta, string, error) {
	p, err := readPointer(fs, dir)
	if err != nil {
		return Meta{}, "", err
	}
	path := filepath.Join(dir, nameOf(p.index, p.term))
	m, err := readMeta(fs, path)
	if err != nil {
		return Meta{}, "", err
	}
	if m.sum != p.sum {
		return Meta{}, "", &DamageError{
			File: filepath.Join(path, metaName), What: "it is not the description that the pointer names",
		}
	}
	return m, path, nil
}

// tidy removes what nobody needs at the start of a node whose current snapshot has that
// name. If there is none ("") complete snapshots stay: somebody may have lost the pointer.
func tidy(fs vfs.FS, dir, keep string) error {
	es, err := fs.List(dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range es {
		if e.Dir && strings.HasPrefix(e.Name, unfinished) {
			if err := vfs.RemoveAll(fs, filepath.Join(dir, e.Name)); err != nil {
				return err
			}
		}
	}
	// What was half removed is gone now. It may have had the name that remove gives to one of
	// these.
	for _, e := range es {
		name := filepath.Join(dir, e.Name)
		_, finished := finishedIndex(e.Name)
		switch {
		case e.Dir && finished && keep != "" && e.Name != keep:
			err = remove(fs, dir, e.Name)
		case e.Name == pointerTemp:
			err = fs.Remove(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// SetCurrent makes a snapshot that Finish or Receive has returned the current one,
// durably. It returns ErrOlder if the current one is newer. One goroutine at a time may
// call it. When it returns another error, the pointer names either of the two snapshots,
// and both must stay.
func SetCurrent(fs vfs.FS, dir string, m *Meta) error {
	if err := setCurrent(fs, dir, m); err != nil {
		return fmt.Errorf("make the snapshot of %v the current one: %w", m.Entry(), spaceError(err))
	}
	return nil
}

func setCurrent(fs vfs.FS, dir string, m *Meta) error {
	was, err := readPointer(fs, dir)
	switch {
	case errors.Is(err, ErrNone):
	case err != nil:
		return err
	case was.index > m.Index || was.index == m.Index && was.term != m.Term:
		return fmt.Errorf("%w: that is of entry %d of term %d", ErrOlder, was.index, was.term)
	}
	p := pointer{m.Index, m.Term, m.sum}
	return vfs.Replace(fs, filepath.Join(dir, pointerName), p.encode())
}

// Prune removes the complete snapshots that are older than the current one, but for those
// with a path in keep, which somebody reads. Newer ones stay, for somebody may be about to
// make one of them current; so it may be called beside everything else. What is left when it
// fails goes at the next start.
func Prune(fs vfs.FS, dir string, keep ...string) error {
	if err := prune(fs, dir, keep); err != nil {
		return fmt.Errorf("remove old snapshots in %s: %w", dir, err)
	}
	return nil
}

// Remove removes a complete snapshot that is not the current one, that nobody reads and that
// nobody is about to make current. It does nothing if there is none.
func Remove(fs vfs.FS, dir, path string) error {
	there, err := exists(fs, path)
	if err == nil && there {
		err = remove(fs, dir, filepath.Base(path))
	}
	if err != nil {
		return fmt.Errorf("remove the snapshot %s: %w", path, err)
	}
	return nil
}

func prune(fs vfs.FS, dir string, keep []string) error {
	p, err := readPointer(fs, dir)
	if err != nil {
		return err
	}
	es, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, e := range es {
		index, ok := finishedIndex(e.Name)
		if !ok || !e.Dir || index >= p.index || slices.Contains(keep, filepath.Join(dir, e.Name)) {
			continue
		}
		if err := remove(fs, dir, e.Name); err != nil {
			return err
		}
	}
	return nil
}
