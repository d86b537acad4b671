package vfs

import (
	"errors"
	"hash/crc32"
	"slices"
)

// Sequential writes new files, one after the other, each from its start to its end, in
// large writes. It is for one goroutine. The zero value has no file. After an error only
// Abandon is of use.
type Sequential struct {
	Buf []byte // what is not written yet; to be appended to while a file is open

	// Gentle syncs each write at once. A sync of another file that the disk is asked
	// for meanwhile then waits for no more than one write.
	Gentle bool

	file File   // nil if none is open
	off  int64  // where Buf goes
	sum  uint32 // CRC-32C of what was written
}

// WriteBuffer is how many bytes are collected before they are written.
const WriteBuffer = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Create begins a file. The one before was finished or abandoned.
func (w *Sequential) Create(fs FS, name string) error {
	file, err := fs.Create(name, 0)
	if err != nil {
		return err
	}
	w.file, w.Buf, w.off, w.sum = file, w.Buf[:0], 0, 0
	return nil
}

// Open reports whether a file is open.
func (w *Sequential) Open() bool { return w.file != nil }

// Size is how long the file will be if nothing follows.
func (w *Sequential) Size() int64 { return w.off + int64(len(w.Buf)) }

// Extend returns the next n bytes, to be filled before the next call.
func (w *Sequential) Extend(n int) []byte {
	at := len(w.Buf)
	w.Buf = slices.Grow(w.Buf, n)[:at+n]
	return w.Buf[at:]
}

// Spill writes what was collected if that is a mebibyte or more.
func (w *Sequential) Spill() error {
	if len(w.Buf) < WriteBuffer {
		return nil
	}
	return w.flush()
}

func (w *Sequential) flush() error {
	if _, err := w.file.WriteAt(w.Buf, w.off); err != nil {
		return err
	}
	if w.Gentle {
		if err := w.file.Sync(); err != nil {
			return err
		}
	}
	w.off += int64(len(w.Buf))
	w.sum = crc32.Update(w.sum, castagnoli, w.Buf)
	w.Buf = w.Buf[:0]
	if cap(w.Buf) > 4*WriteBuffer {
		w.Buf = nil
	}
	return nil
}

// Sync makes what was written so far durable.
func (w *Sequential) Sync() error {
	if err := w.flush(); err != nil || w.Gentle {
		return err
	}
	return w.file.Sync()
}

// Finish makes the file durable and closes it. It returns the CRC-32C of all its bytes.
func (w *Sequential) Finish() (sum uint32, err error) {
	err = w.Sync()
	return w.sum, errors.Join(err, w.Abandon())
}

// Abandon closes the file, if one is open, as it is.
func (w *Sequential) Abandon() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}
