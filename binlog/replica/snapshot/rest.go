package snapshot

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"trellis/binlog/internal/index"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/replica/entry"
	"trellis/binlog/sealed"
	"trellis/binlog/spill"
	"trellis/binlog/vfs"
)

// part is what a part of a stream of the rest has. Its values are on the wire.
type part byte

const (
	partEnd     part = iota // nothing: the checksum follows
	partJobs                // jobs whose bodies the receiver has: an index, as JobsName is one
	partRecords             // records, as a segment has them
)

const (
	partHead = 8
	// maxPart is how long the records of one write are at most.
	maxPart = record.HeaderSize + vfs.WriteBuffer + entry.MaxSize
	// lackingBytes is how many bytes of records are read in the order of their places.
	lackingBytes = 4 << 20
)

// parts writes parts of a stream, each of one kind.
type parts struct {
	kind part
	out  io.Writer
}

func (p parts) Write(b []byte) (int, error) {
	head := make([]byte, partHead)
	head[0] = byte(p.kind)
	le.PutUint32(head[4:], uint32(len(b)))
	if _, err := p.out.Write(head); err != nil {
		return 0, err
	}
	return p.out.Write(b)
}

// rest is a Standby that sends what a receiver needs of a snapshot.
type rest struct {
	*Copier                // of records
	has     *spill.IDs     // of the bodies that the receiver has
	told    spill.IDs      // of the jobs with bodies that were sent: what else there is of them is later
	jobs    *index.Builder // of those whose bodies it has; nil if there are none to be sent
	head    []byte         // of the last one
	lacking []journal.Record
	size    int64 // bytes of the records of those that it lacks and that are to be read
	bodies  *spill.Reader
	out     io.Writer
}

// SendRest writes the snapshot in that directory as one stream for ReceiveRest, without the bodies that the receiver
// has. Bodies in body files are read in the order of their places, as far as their jobs are near. See Send.
func SendRest(fs vfs.FS, path string, bodies *spill.Reader, has *spill.IDs, w io.Writer) error {
	if err := sendRest(fs, path, bodies, has, &summedWriter{w: w}); err != nil {
		return fmt.Errorf("send the rest of snapshot %s: %w", path, err)
	}
	return nil
}

func sendRest(fs vfs.FS, path string, bodies *spill.Reader, has *spill.IDs, out *summedWriter) error {
	m, err := readMeta(fs, path)
	if err != nil {
		return err
	}
	if _, err := out.Write(m.encode()); err != nil {
		return err
	}
	w := &Writer{tmp: path, out: sealed.Writer{
		FS: pipe{out: parts{partRecords, out}}, Limit: math.MaxInt64, Seed: m.sum | 1, Index: 1, At: max(m.Stamp, 1),
	}}
	s := &rest{Copier: w.Copier(), has: has, bodies: bodies, out: out}
	if err := Load(fs, path, s, nil); err != nil {
		return err
	}
	if err := s.read(); err != nil {
		return err
	}
	if s.jobs != nil {
		if err := s.endJobs(nil); err != nil {
			return err
		}
	}
	if w.out.Size() > 0 {
		if err := w.out.Sync(); err != nil {
			return err
		}
	}
	if _, err := (parts{partEnd, out}).Write(nil); err != nil {
		return err
	}
	return cmp.Or(s.Err(), out.trailer())
}

// Full implements Standby.
func (s *rest) Full(r *journal.Record, at journal.Place) (former journal.Former, err error) {
	switch first := r.BodySize() > 0 && s.told.Add(r.ID); {
	case first && s.has.Has(r.ID):
		return former, s.job(r)
	case r.Absent == nil:
		if err = s.read(); err == nil { // which may be of the same job, and is older
			former, err = s.Copier.Full(r, at)
		}
		return former, err
	}
	x, absent := *r, *r.Absent
	x.Absent = &absent
	s.lacking = append(s.lacking, x)
	if s.size += r.Size() + int64(absent.Size); s.size >= lackingBytes {
		err = s.read()
	}
	return former, err
}

// job sends a job whose body the receiver has.
func (s *rest) job(r *journal.Record) error {
	if s.jobs == nil {
		s.jobs = index.NewBuilder(&JobsHeader, 0)
	}
	s.head = record.EncodeHead(s.head[:0], r)
	s.jobs.Add(0, s.head)
	if b := s.jobs.Take(); b != nil {
		return s.endJobs(b)
	}
	return nil
}

// endJobs ends a part with jobs that begins with b.
func (s *rest) endJobs(b []byte) error {
	b = append(b, s.jobs.Finish(0, 0)...)
	s.jobs = nil
	_, err := parts{partJobs, s.out}.Write(b)
	index.Free(b)
	return err
}

// read sends the jobs whose bodies are to be read.
func (s *rest) read() error {
	slices.SortFunc(s.lacking, func(a, b journal.Record) int { return a.Absent.Place.Compare(b.Absent.Place) })
	for i := range s.lacking {
		r := &s.lacking[i]
		body, err := s.bodies.Body(r.Absent)
		if err != nil {
			return err
		}
		r.Absent, r.Body = nil, body
		if _, err := s.Copier.Full(r, journal.Place{}); err != nil {
			return err
		}
	}
	clear(s.lacking)
	s.lacking, s.size = s.lacking[:0], 0
	return nil
}

// ReceiveRest reads a stream of SendRest's, which is to be the snapshot of that entry, into a directory of snapshots: a
// snapshot of this member's own, whose bodies are where it has them, or has put them now. in is that of which the
// sender was told. See Receive.
func ReceiveRest(fs vfs.FS, dir string, index, term uint64, r io.Reader, in *spill.Incoming) (Meta, string, error) {
	m, path, err := receiveRest(fs, dir, index, term, &summedReader{r: r}, in)
	if err != nil {
		return Meta{}, "", fmt.Errorf("receive the rest of the snapshot of entry %d of term %d into %s: %w",
			index, term, dir, spaceError(err))
	}
	return m, path, nil
}

func receiveRest(
	fs vfs.FS, dir string, index, term uint64, from *summedReader, in *spill.Incoming,
) (m Meta, path string, err error) {
	if m, err = receiveAnyMeta(from); err != nil {
		return m, "", err
	}
	if m.Index != index || m.Term != term {
		return m, "", malformed("it is the snapshot of %v", m.Entry())
	}
	w, err := Create(fs, dir)
	if err != nil {
		return m, "", err
	}
	defer func() { err = errors.Join(err, w.Abort()) }() // nothing, once it is finished
	x := restReader{Copier: w.copier, bodies: in}
	if err := x.read(from); err != nil {
		return m, "", err
	}
	if m.Files, err = in.Seal(w.Files()); err != nil {
		return m, "", err
	}
	return w.Finish(m)
}

// restReader is a Standby that makes a snapshot of the parts of a stream.
type restReader struct {
	*Copier
	bodies *spill.Incoming
	told   spill.IDs // of the jobs with bodies that have come: what else comes of them is later

	buf     []byte
	header  record.Header // of the records; Index 0 if there were none
	decoder Decoder
}

// read reads all parts, and the checksum behind them.
func (x *restReader) read(from *summedReader) error {
	for {
		var head [partHead]byte
		if err := from.full(head[:]); err != nil {
			return err
		}
		kind, n := part(head[0]), int(le.Uint32(head[4:]))
		if kind > partRecords || n > maxPart || (n == 0) != (kind == partEnd) {
			return malformed("a part of kind %d with %d bytes", kind, n)
		}
		for x.buf = x.buf[:0]; len(x.buf) < n; {
			at := len(x.buf)
			x.buf = append(x.buf, make([]byte, min(n-at, copyBuffer))...)
			if err := from.full(x.buf[at:]); err != nil {
				return err
			}
		}
		var err error
		switch kind {
		case partEnd:
			return cmp.Or(x.Err(), from.trailer())
		case partJobs:
			err = x.jobs(x.buf)
		case partRecords:
			err = x.records(x.buf)
		}
		if errors.Is(err, index.ErrBad) || errors.Is(err, record.ErrInvalid) {
			err = malformed("%w", err)
		}
		if err != nil {
			return err
		}
	}
}

// jobs writes jobs whose bodies are here.
func (x *restReader) jobs(b []byte) error {
	i, err := index.Open(bytes.NewReader(b), int64(len(b)), &JobsHeader)
	if err != nil {
		return err
	}
	return i.Read(index.States, func(_ int64, b []byte) error {
		at, ok := x.bodies.Place(record.Number(b))
		if record.KindOf(b) != record.Full || !ok {
			return malformed("a %v record of job %d, without a body that is here", record.KindOf(b), record.Number(b))
		}
		r := &x.decoder.rec
		x.decoder.turn()
		size := record.DecodeHead(b, r, &x.decoder.names)
		x.told.Add(r.ID)
		return x.cold(r, at, size)
	})
}

// cold writes a job whose body of that size is at a place.
func (x *restReader) cold(r *journal.Record, at journal.Place, size uint32) error {
	c := *r
	c.Body, c.Absent = nil, &journal.Fetch{ID: r.ID, Place: at, Size: size}
	return x.w.Full(&c)
}

// records writes the records of a part, and bodies to files.
func (x *restReader) records(b []byte) error {
	if x.header.Index == 0 {
		if err := x.header.Decode(b[:min(len(b), record.HeaderSize)]); err != nil || x.header.Index != 1 {
			return malformed("its records do not begin: %w", err)
		}
		b = b[record.HeaderSize:]
	}
	for len(b) > 0 {
		rec, err := record.First(b, 1, x.header.Salt())
		if err != nil {
			return malformed("%w", err)
		}
		switch k := record.KindOf(rec); k {
		case record.Full, record.Update, record.Delete, record.Hold,
			record.Setting, record.Policy, record.Close, record.Numbers:
		default:
			return malformed("a %v record in a snapshot", k)
		}
		if _, err := x.decoder.Tell(rec, 1, x); err != nil {
			return err
		}
		b = b[len(rec):]
	}
	return nil
}

// Full implements Standby.
func (x *restReader) Full(r *journal.Record, at journal.Place) (former journal.Former, err error) {
	if len(r.Body) == 0 || !x.told.Add(r.ID) {
		return x.Copier.Full(r, at)
	}
	if at, err = x.bodies.Add(r); err != nil {
		return former, err
	}
	return former, x.cold(r, at, uint32(len(r.Body)))
}
