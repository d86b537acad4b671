package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
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

// RemoveAll removes a directory with all that is in it. It is no error if there is none.
func RemoveAll(fsys FS, dir string) error {
	es, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range es {
		remove := fsys.Remove
		if e.Dir {
			remove = func(name string) error { return RemoveAll(fsys, name) }
		}
		err = errors.Join(err, remove(filepath.Join(dir, e.Name)))
	}
	if err != nil {
		return err
	}
	return fsys.Remove(dir)
}

// TempSuffix ends the name of a file that Replace has not completed.
const TempSuffix = ".tmp"

// Series names the files of a log: each has the series' prefix and a number of ten
// decimal digits, so that names sort as numbers do.
type Series string

const seriesDigits = 10

// Name is the name of the file with that number.
func (s Series) Name(number uint32) string {
	return fmt.Sprintf("%s%0*d", string(s), seriesDigits, number)
}

// Number is the number in a file's name, or 0 if the file is not of the series.
func (s Series) Number(name string) uint32 {
	digits, ok := strings.CutPrefix(name, string(s))
	if !ok || len(digits) != seriesDigits {
		return 0
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}
