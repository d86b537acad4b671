package snapshot

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"trellis/binlog/vfs"
)

const (
	metaName    = "meta"
	pointerName = "current"
	pointerTemp = pointerName + vfs.TempSuffix
	unfinished  = "unfinished." // and a number: being written or received; and the name of a finished one: being removed
)

// nameOf is the name of the directory of a finished snapshot.
func nameOf(index, term uint64) string { return fmt.Sprintf("%d-%d", index, term) }

// finishedIndex is the index in the name of the directory of a finished snapshot.
func finishedIndex(name string) (uint64, bool) {
	a, b, _ := strings.Cut(name, "-")
	index, err := strconv.ParseUint(a, 10, 64)
	term, err2 := strconv.ParseUint(b, 10, 64)
	return index, err == nil && err2 == nil && name == nameOf(index, term)
}

// begin makes a directory for a snapshot that is not finished, and dir itself if need
// be.
func begin(fs vfs.FS, dir string) (string, error) {
	if err := fs.Mkdir(dir); err != nil && !errors.Is(err, iofs.ErrExist) {
		return "", err
	}
	// Whoever has made it may have failed before its name was durable.
	if err := vfs.SyncDir(fs, filepath.Dir(dir)); err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		name := filepath.Join(dir, unfinished+strconv.Itoa(n))
		if err := fs.Mkdir(name); err == nil {
			return name, nil
		} else if !errors.Is(err, iofs.ErrExist) {
			return "", err
		}
	}
}

// publish makes the snapshot in tmp, whose segments are complete and durable, count under
// its name, and returns its description and path. A snapshot that has the name already has
// the same jobs, and somebody may be reading it, so that it stays. tmp is gone in any
// case.
func publish(fs vfs.FS, dir, tmp string, m *Meta) (_ Meta, path string, err error) {
	path = filepath.Join(dir, nameOf(m.Index, m.Term))
	there, err := exists(fs, path)
	if err == nil && !there {
		tmp, err = rename(fs, dir, tmp, path, m)
	}
	if err != nil || there {
		err = errors.Join(err, vfs.RemoveAll(fs, tmp))
	}
	if err != nil {
		return Meta{}, "", err
	}
	if there {
		// Whoever has made it may have ended before it was durable.
		old, err := readMeta(fs, path)
		return old, path, errors.Join(err, vfs.SyncDir(fs, dir))
	}
	return *m, path, nil
}

// rename completes the snapshot in tmp and gives it its name, durably. After an error it
// returns where the snapshot is: tmp may be somebody else's by then, since begin draws a name
// as soon as it is free.
func rename(fs vfs.FS, dir, tmp, path string, m *Meta) (left string, err error) {
	if err := vfs.WriteFile(fs, filepath.Join(tmp, metaName), m.encode()); err != nil {
		return tmp, err
	}
	if err := vfs.SyncDir(fs, tmp); err != nil {
		return tmp, err
	}
	if err := fs.Rename(tmp, path); err != nil {
		return tmp, err
	}
	if err := vfs.SyncDir(fs, dir); err != nil {
		left, freed := free(fs, dir, unfinished+filepath.Base(path))
		if freed == nil {
			freed = fs.Rename(path, left)
		}
		return left, errors.Join(err, freed)
	}
	return "", nil
}

func exists(fs vfs.FS, path string) (bool, error) {
	es, err := fs.List(filepath.Dir(path))
	return slices.ContainsFunc(es, func(e vfs.Entry) bool { return e.Name == filepath.Base(path) }), err
}

// remove removes a finished snapshot. Its name goes first and durably: what has the name
// of a finished one is complete. Its new name is none that begin can draw at the same
// moment, because a rename replaces a directory that was just made and is empty.
func remove(fs vfs.FS, dir, name string) error {
	tmp, err := free(fs, dir, unfinished+name)
	if err != nil {
		return err
	}
	if err := fs.Rename(filepath.Join(dir, name), tmp); err != nil {
		return err
	}
	if err := vfs.SyncDir(fs, dir); err != nil {
		return err
	}
	return vfs.RemoveAll(fs, tmp)
}

// free returns the path of a name in dir, once nothing has that name any more: a snapshot of
// this name may have been removed by half before it came again.
func free(fs vfs.FS, dir, name string) (path string, err error) {
	path = filepath.Join(dir, name)
	there, err := exists(fs, path)
	if err == nil && there {
		err = vfs.RemoveAll(fs, path)
	}
	return path, err
}

// readFile returns the content of a file of at most limit bytes. Errors of the file's
// content are damage.
func readFile(fs vfs.FS, name string, limit int64) (_ []byte, err error) {
	f, err := fs.OpenRead(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, &DamageError{File: name, What: fmt.Sprintf("the file has %d bytes, at most %d are possible", size, limit)}
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return nil, &DamageError{File: name, Offset: int64(n), What: "it cannot be read", Err: err}
	}
	return b, nil
}

func readMeta(fs vfs.FS, path string) (Meta, error) {
	name := filepath.Join(path, metaName)
	b, err := readFile(fs, name, maxMeta)
	if errors.Is(err, iofs.ErrNotExist) {
		return Meta{}, &DamageError{File: name, What: "the file is missing"}
	}
	if err != nil {
		return Meta{}, err
	}
	var m Meta
	if err := m.decode(b); errors.Is(err, ErrVersion) {
		return Meta{}, fmt.Errorf("%s: %w", name, err)
	} else if err != nil {
		return Meta{}, &DamageError{File: name, What: err.Error()}
	}
	if filepath.Base(path) != nameOf(m.Index, m.Term) {
		return Meta{}, &DamageError{File: name, What: fmt.Sprintf("it describes the snapshot of %v", m.Entry())}
	}
	return m, nil
}
