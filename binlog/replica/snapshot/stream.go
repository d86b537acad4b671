package snapshot

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"path/filepath"

	"trellis/binlog/record"
	"trellis/binlog/sealed"
	"trellis/binlog/vfs"
)

const (
	trailerMagic = "DONE"
	trailerSize  = 8

	// copyBuffer is how many bytes of a stream are in memory.
	copyBuffer = 256 << 10
)

// Send writes the snapshot in that directory as one stream. It checks the files'
// checksums on the way; after an error the receiver has no whole stream. The snapshot
// must not be removed meanwhile.
func Send(fs vfs.FS, path string, w io.Writer) error {
	if err := sendFiles(fs, path, w); err != nil {
		return fmt.Errorf("send snapshot %s: %w", path, err)
	}
	return nil
}

func sendFiles(fs vfs.FS, path string, w io.Writer) error {
	m, err := readMeta(fs, path)
	if err != nil {
		return err
	}
	if len(m.Files) > 0 {
		return errors.New("it has bodies in body files: SendPlain sends it")
	}
	out := summedWriter{w: w}
	if _, err := out.Write(m.encode()); err != nil {
		return err
	}
	buf := make([]byte, copyBuffer)
	for i, s := range m.segments {
		if err := sendFile(fs, filepath.Join(path, record.FileName(uint32(i)+1)), s, &out, buf); err != nil {
			return err
		}
	}
	return out.trailer()
}

func sendFile(fs vfs.FS, name string, s sealed.Segment, w io.Writer, buf []byte) (err error) {
	file, err := fs.OpenRead(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	crc := uint32(0)
	for off := int64(0); off < s.Size; {
		b := buf[:min(int64(len(buf)), s.Size-off)]
		if n, err := file.ReadAt(b, off); n < len(b) {
			return &DamageError{File: name, Offset: off + int64(n), What: "it cannot be read", Err: err}
		}
		crc = sum(crc, b)
		off += int64(len(b))
		if off == s.Size && crc != s.Sum {
			// What is left unsent keeps the receiver from a whole stream.
			return &DamageError{File: name, What: "the file has not the checksum that the description says"}
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

type summedWriter struct {
	w   io.Writer
	sum uint32
}

func (s *summedWriter) Write(b []byte) (int, error) {
	s.sum = sum(s.sum, b)
	return s.w.Write(b)
}

// trailer writes the checksum of all before it, which ends a stream.
func (s *summedWriter) trailer() error {
	_, err := s.w.Write(le.AppendUint32([]byte(trailerMagic), s.sum))
	return err
}

// Receive reads a stream of Send's, which is to be the snapshot of that entry, into a
// directory of snapshots. When it returns nil, the snapshot is complete and durable, and
// every record of it was checked; it returns what Writer.Finish does. After an error
// nothing is left. It takes nothing from r behind the stream's end, and as much memory as
// has arrived, at most about 40 MiB: that of the largest record. The jobs of a stream
// with right checksums are believed, so that the caller has to know the sender.
func Receive(fs vfs.FS, dir string, index, term uint64, r io.Reader) (Meta, string, error) {
	m, path, err := receive(fs, dir, index, term, &summedReader{r: r})
	if err != nil {
		return Meta{}, "", fmt.Errorf("receive the snapshot of entry %d of term %d into %s: %w",
			index, term, dir, spaceError(err))
	}
	return m, path, nil
}

func receive(fs vfs.FS, dir string, index, term uint64, in *summedReader) (Meta, string, error) {
	m, err := receiveMeta(in)
	if err != nil {
		return Meta{}, "", err
	}
	if m.Index != index || m.Term != term {
		return Meta{}, "", malformed("it is the snapshot of %v", m.Entry())
	}
	tmp, err := begin(fs, dir)
	if err != nil {
		return Meta{}, "", err
	}
	if err := receiveFiles(fs, tmp, &m, in); err != nil {
		return Meta{}, "", errors.Join(err, vfs.RemoveAll(fs, tmp))
	}
	return publish(fs, dir, tmp, &m)
}

// Extract reads a stream of Send's into a directory, which is locked and holds nothing
// else, for a server without a cluster to open with -b. Until all is complete and durable
// the description is there too, with which such a server refuses the directory. After an
// error nothing is left. See Receive for what is checked.
func Extract(fs vfs.FS, dir string, r io.Reader) (Meta, error) {
	m, err := extract(fs, dir, &summedReader{r: r})
	if err != nil {
		return Meta{}, fmt.Errorf("extract a snapshot into %s: %w", dir, spaceError(err))
	}
	return m, nil
}

func extract(fs vfs.FS, dir string, in *summedReader) (Meta, error) {
	m, err := receiveMeta(in)
	if err != nil {
		return Meta{}, err
	}
	guard := filepath.Join(dir, metaName)
	if err := vfs.WriteFile(fs, guard, m.encode()); err != nil {
		return Meta{}, err
	}
	err = vfs.SyncDir(fs, dir)
	if err == nil {
		err = receiveFiles(fs, dir, &m, in)
	}
	if err == nil {
		err = vfs.SyncDir(fs, dir)
	}
	if err != nil {
		return Meta{}, errors.Join(err, unextract(fs, dir, &m))
	}
	return m, errors.Join(fs.Remove(guard), vfs.SyncDir(fs, dir))
}

// unextract removes what extract has made, the description last.
func unextract(fs vfs.FS, dir string, m *Meta) error {
	for i := range m.segments {
		err := fs.Remove(filepath.Join(dir, record.FileName(uint32(i)+1)))
		if errors.Is(err, iofs.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
	}
	return fs.Remove(filepath.Join(dir, metaName))
}

// receiveMeta reads what a stream with all bodies starts with.
func receiveMeta(in *summedReader) (m Meta, err error) {
	if m, err = receiveAnyMeta(in); err == nil && len(m.Files) > 0 {
		err = malformed("it has bodies elsewhere")
	}
	return m, err
}

// receiveAnyMeta reads what a stream starts with.
func receiveAnyMeta(in *summedReader) (m Meta, err error) {
	b := make([]byte, metaFixed, copyBuffer)
	if err := in.full(b); err != nil {
		return m, err
	}
	n, err := metaLength(b)
	if err != nil {
		return m, malformed("%w", err)
	}
	for len(b) < n {
		part := make([]byte, min(n-len(b), copyBuffer))
		if err := in.full(part); err != nil {
			return m, err
		}
		b = append(b, part...)
	}
	if err := m.decode(b); errors.Is(err, ErrVersion) {
		return m, err
	} else if err != nil {
		return m, malformed("%w", err)
	}
	return m, nil
}

// receiveFiles reads the segments and the trailer, and checks each segment when it is
// there.
func receiveFiles(fs vfs.FS, tmp string, m *Meta, in *summedReader) error {
	check := reader{fs: fs, path: tmp, meta: m}
	buf := make([]byte, copyBuffer)
	for i, s := range m.segments {
		if err := receiveFile(fs, filepath.Join(tmp, record.FileName(uint32(i)+1)), s, in, buf); err != nil {
			return err
		}
		if err := check.next(); err != nil {
			return asMalformed(err)
		}
	}
	if err := check.end(); err != nil {
		return asMalformed(err)
	}
	return in.trailer()
}

// asMalformed takes damage of a file that was written a moment ago for what it is: it
// came so, unless the system says that it cannot read it.
func asMalformed(err error) error {
	if d, ok := errors.AsType[*DamageError](err); ok && d.Err == nil {
		return malformed("%s: offset %d: %s", filepath.Base(d.File), d.Offset, d.What)
	}
	return err
}

func receiveFile(fs vfs.FS, name string, s sealed.Segment, in *summedReader, buf []byte) (err error) {
	// All at once, so that a full disk is known of before the bytes come.
	file, err := fs.Create(name, s.Size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for off, synced := int64(0), int64(0); off < s.Size; {
		b := buf[:min(int64(len(buf)), s.Size-off)]
		if err := in.full(b); err != nil {
			return err
		}
		if _, err := file.WriteAt(b, off); err != nil {
			return err
		}
		off += int64(len(b))
		if off-synced >= vfs.WriteBuffer { // see sealed.Writer.Gentle
			if err := file.Sync(); err != nil {
				return err
			}
			synced = off
		}
	}
	return file.Sync()
}

// summedReader reads a stream and sums it up.
type summedReader struct {
	r   io.Reader
	sum uint32
}

// full fills b. A stream that ends early is malformed; other errors are those of the
// connection.
func (s *summedReader) full(b []byte) error {
	n, err := io.ReadFull(s.r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return malformed("it ends early: %w", io.ErrUnexpectedEOF)
	}
	s.sum = sum(s.sum, b[:n])
	return err
}

// trailer reads what a stream ends with.
func (s *summedReader) trailer() error {
	want := s.sum
	trailer := make([]byte, trailerSize)
	if err := s.full(trailer); err != nil {
		return err
	}
	if string(trailer[:4]) != trailerMagic || le.Uint32(trailer[4:]) != want {
		return malformed("the checksum of the stream is wrong")
	}
	return nil
}
