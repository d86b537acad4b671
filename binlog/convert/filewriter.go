package convert

import (
	"errors"
	"slices"

	"trellis/binlog/vfs"
)

// fileWriter writes new files, one after the other, each from its start to its
// end.
type fileWriter struct {
	file vfs.File // nil if none is begun
	buf  []byte   // not yet written
	off  int64    // where buf goes
}

// writeBuffer is how many bytes are collected before they are written.
const writeBuffer = 1 << 20

func (w *fileWriter) create(fs vfs.FS, name string) error {
	file, err := fs.Create(name, 0)
	if err != nil {
		return err
	}
	w.file, w.buf, w.off = file, w.buf[:0], 0
	return nil
}

// size is how long the file will be if nothing follows.
func (w *fileWriter) size() int64 { return w.off + int64(len(w.buf)) }

// extend returns the next n bytes, to be filled before the next call.
func (w *fileWriter) extend(n int) []byte {
	at := len(w.buf)
	w.buf = slices.Grow(w.buf, n)[:at+n]
	return w.buf[at:]
}

// spill writes what was collected if that is enough.
func (w *fileWriter) spill() error {
	if len(w.buf) < writeBuffer {
		return nil
	}
	return w.flush()
}

func (w *fileWriter) flush() error {
	n, err := w.file.WriteAt(w.buf, w.off)
	if err != nil {
		return err
	}
	w.off += int64(n)
	w.buf = w.buf[:0]
	return nil
}

// finish makes the file, if there is one, durable and closes it.
func (w *fileWriter) finish() error {
	if w.file == nil {
		return nil
	}
	err := w.flush()
	if err == nil {
		err = w.file.Sync()
	}
	return errors.Join(err, w.abandon())
}

// abandon closes the file as it is.
func (w *fileWriter) abandon() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}
