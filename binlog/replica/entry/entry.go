package entry

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"trellis/binlog/record"
)

// Kind is what an entry says. Its values are on disk and on the wire.
type Kind uint8

// The kinds of entries.
const (
	// Records is a group commit: the changes of jobs since the entry before.
	Records Kind = 1 + iota

	// Begin is the first entry of a leader. What follows it in the same term is
	// this leader's.
	Begin

	// Raise tells that entries behind it may have a later version of the format: every
	// member has said that it can read them.
	Raise
)

func (k Kind) String() string {
	switch k {
	case Records:
		return "records"
	case Begin:
		return "begin"
	case Raise:
		return "raise"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

func (k Kind) known() bool { return k >= Records && k <= Raise }

const (
	// HeaderSize is the length in bytes of a header.
	HeaderSize = 48

	// MaxSize is the greatest length in bytes of an entry's data: a batch of 2 MiB and
	// one operation more, with a body of 16 MiB, and as much again for what operations
	// may become.
	MaxSize = 36 << 20

	// Newest is the latest version of the format that this program reads, as it says. It
	// writes no later one than the last Raise has allowed, and the first without any.
	Newest = 5

	first = 1 // the first version, which all programs read
)

// Salt is where the checksums of an entry's records start.
var Salt = record.NewSalt(0, 0)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Errors of reading.
var (
	// ErrUnknown tells of an entry that a later program has written. It is apart from
	// ErrMalformed because the cure is another one: a newer program on this node.
	ErrUnknown = errors.New("an entry of a version or kind that this program does not know")

	// ErrMalformed tells of data that no program has written as an entry.
	ErrMalformed = errors.New("malformed entry")
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}

// Header starts every entry.
type Header struct {
	Kind     Kind
	Term     uint64 // the term in which the entry was proposed, above zero
	Sequence uint64 // counts the entries of a term from 1 on
	Stamp    int64  // cluster time, nanoseconds since 1970
	LastID   uint64 // no greater id was used up to this entry
	Decided  uint64 // no id below this one is going to become a job; at most LastID + 1
	Version  uint16 // of a Raise: the version that is allowed, 2 or later; 0 in others
	Format   uint8  // the version of the entry itself; 0 for the first
}

// wrong tells what is impossible about a header, or "".
func (h *Header) wrong(records int) string {
	switch {
	case h.Term == 0 || h.Sequence == 0:
		return "no term or no sequence"
	case h.Decided > h.LastID && h.Decided-h.LastID > 1:
		return fmt.Sprintf("ids below %d are decided, but the last is %d", h.Decided, h.LastID)
	case h.Kind != Records && records > 0:
		return fmt.Sprintf("a %v with records", h.Kind)
	case h.Kind == Raise && h.Version <= first || h.Kind != Raise && h.Version != 0:
		return fmt.Sprintf("a %v to version %d", h.Kind, h.Version)
	case records%8 != 0 || records > MaxSize-HeaderSize:
		return fmt.Sprintf("%d bytes of records", records)
	case h.Format == first || h.Format > Newest:
		return fmt.Sprintf("an entry of version %d", h.Format)
	}
	return ""
}

// Seal makes b, which has HeaderSize bytes and then records, the data of an entry. It
// panics if the header is impossible or b is longer than MaxSize: the caller's batches
// are bounded.
func (h *Header) Seal(b []byte) {
	if wrong := h.wrong(len(b) - HeaderSize); wrong != "" || !h.Kind.known() {
		panic(fmt.Sprintf("an entry of %v that cannot be: %s", h.Kind, wrong))
	}
	b[4], b[5] = max(first, h.Format), byte(h.Kind)
	le.PutUint16(b[6:], h.Version)
	le.PutUint64(b[8:], h.Term)
	le.PutUint64(b[16:], h.Sequence)
	le.PutUint64(b[24:], uint64(h.Stamp))
	le.PutUint64(b[32:], h.LastID)
	le.PutUint64(b[40:], h.Decided)
	le.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
}

// Decode checks the checksum of an entry's whole data, and reads the header. Its errors
// wrap ErrUnknown or ErrMalformed. It does not look into the records.
func (h *Header) Decode(b []byte) error {
	switch {
	case len(b) < HeaderSize || len(b) > MaxSize:
		return malformed("%d bytes", len(b))
	case crc32.Checksum(b[4:], castagnoli) != le.Uint32(b):
		return malformed("wrong checksum")
	case b[4] < first || b[4] > Newest:
		return fmt.Errorf("%w: version %d", ErrUnknown, b[4])
	case !Kind(b[5]).known():
		return fmt.Errorf("%w: %v", ErrUnknown, Kind(b[5]))
	}
	d := Header{
		Kind:     Kind(b[5]),
		Term:     le.Uint64(b[8:]),
		Sequence: le.Uint64(b[16:]),
		Stamp:    int64(le.Uint64(b[24:])),
		LastID:   le.Uint64(b[32:]),
		Decided:  le.Uint64(b[40:]),
		Version:  le.Uint16(b[6:]),
	}
	if b[4] != first {
		d.Format = b[4]
	}
	if wrong := d.wrong(len(b) - HeaderSize); wrong != "" {
		return malformed("%s", wrong)
	}
	*h = d
	return nil
}

// Reader reads an entry's records. The zero Reader is to be Reset. It serves one
// goroutine, and keeps its memory from one entry to the next.
type Reader struct {
	header  Header
	scanner record.Scanner
	data    shifted
	size    int64 // of the data, as the scanner counts
}

// shifted is an entry's data where a scanner expects a segment: its records begin
// behind a segment's header.
type shifted struct{ records []byte }

func (s *shifted) ReadAt(p []byte, off int64) (int, error) {
	off -= record.HeaderSize
	if off < 0 || off >= int64(len(s.records)) {
		return 0, io.EOF
	}
	n := copy(p, s.records[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Reset turns to the data of an entry, which nobody changes while it is read, and
// returns its header. Its errors are those of Header.Decode.
func (r *Reader) Reset(b []byte) (Header, error) {
	r.data.records, r.size = nil, 0
	if err := r.header.Decode(b); err != nil {
		r.scanner.Reset(&r.data, &record.Header{}, 0)
		return Header{}, err
	}
	r.data.records = b[HeaderSize:]
	r.size = record.HeaderSize + int64(len(r.data.records))
	r.scanner.Reset(&r.data, &record.Header{}, r.size)
	return r.header, nil
}

// Next returns the next record, sound, and valid until the next call, or io.EOF behind
// the last one. Other errors wrap ErrMalformed: the entry's writer was broken, for the
// checksum is right.
func (r *Reader) Next() ([]byte, error) {
	if r.scanner.Offset() >= r.size {
		return nil, io.EOF
	}
	at := r.scanner.Offset() - record.HeaderSize + HeaderSize
	b, err := r.scanner.Next()
	if err != nil {
		return nil, malformed("offset %d: %w", at, err)
	}
	switch k := record.KindOf(b); {
	case record.Version(b) > max(first, r.header.Format):
		return nil, malformed("offset %d: a %v record of a later version", at, k)
	case k == record.Setting || k == record.Policy || k == record.Close || k == record.Numbers: // not of a job
	case k != record.Full && k != record.Update && k != record.Delete && k != record.Hold:
		return nil, malformed("offset %d: a %v record", at, k)
	case record.Number(b) == 0 || record.Number(b) > r.header.LastID:
		return nil, malformed("offset %d: a %v record of id %d, but the last id is %d",
			at, k, record.Number(b), r.header.LastID)
	}
	return b, nil
}
