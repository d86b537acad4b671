package vfs

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// WriteFile makes a new file of that content, durable but for its name. After an error
// there is none.
func WriteFile(fsys FS, name string, b []byte) error {
	f, err := fsys.Create(name, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, fsys.Remove(name))
	}
	return nil
}

// Replace makes a file of that content durable, in the place of the one of that name if
// there is one. A crash may leave a file with TempSuffix added to the name. After an error
// either content may be on disk.
func Replace(fsys FS, name string, b []byte) error {
	temp := name + TempSuffix
	if err := fsys.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := WriteFile(fsys, temp, b); err != nil {
		return err
	}
	if err := fsys.Rename(temp, name); err != nil {
		return err
	}
	return SyncDir(fsys, filepath.Dir(name))
}

// TempSuffix ends the name of a file that Replace has not completed.
const TempSuffix = ".tmp"
