package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"trellis/binlog/replica/wire/frame"
)

// kind is what a frame is. Its values are on the wire.
type kind uint8

const (
	kindMessage  kind = 1 + iota // a raft message
	kindPulse                    // no payload: the sender lives
	kindChunk                    // a part of a snapshot stream
	kindEnd                      // no payload: the snapshot stream is whole
	kindDone                     // a text: why the snapshot was not taken; without one, it was
	kindRequest                  // a control request
	kindResponse                 // its response
	kindError                    // a text instead of a response
	_                            // what a trunk carries: see package trunk of the reactor
	kindTrunk                    // what a loop says of itself when it begins a trunk
	kindHas                      // a part of what the receiver of a snapshot has
	kinds
)

// Limits of a frame's payload, in bytes.
const (
	// MaxMessage is the limit of a raft message in the format of doc.go. It has room for
	// the largest entry, and for entries of 12 MiB in raft's count whatever their number.
	MaxMessage = 40 << 20

	// MaxControl is the limit of a control request and of a response.
	MaxControl = 1 << 20

	maxChunk = 64 << 10
	maxText  = 512
)

var maxPayload = [kinds]uint32{
	kindMessage:  MaxMessage,
	kindChunk:    maxChunk,
	kindDone:     maxText,
	kindRequest:  MaxControl,
	kindResponse: MaxControl,
	kindError:    maxText,
	kindTrunk:    trunkHelloSize,
	kindHas:      maxChunk,
}

const (
	frameHead = frame.Head
	frameTail = frame.Tail
	bufSize   = 64 << 10 // where many frames go, or large ones
	smallBuf  = 4 << 10

	// keepLarge is the greatest buffer for a large frame that a connection keeps.
	keepLarge = 2 << 20
)

var le = binary.LittleEndian

// errFrame tells of bytes that no program has sent as a frame.
var errFrame = errors.New("not a frame of this protocol")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errFrame}, args...)...)
}

// frameWriter writes frames. An error of the connection stays, and Flush returns it.
type frameWriter struct {
	w   *bufio.Writer
	crc uint32
	buf [messageHead]byte
}

// newFrameWriter has a buffer of size bytes, of which one that writes a frame or two needs few.
func newFrameWriter(w io.Writer, size int) *frameWriter {
	return &frameWriter{w: bufio.NewWriterSize(w, size)}
}

func (f *frameWriter) begin(k kind, length int) {
	frame.PutHead(f.buf[:], uint8(k), length)
	f.crc = 0
	f.write(f.buf[:frameHead])
}

// write adds to the payload.
func (f *frameWriter) write(b []byte) {
	f.crc = frame.Sum(f.crc, b)
	_, _ = f.w.Write(b) // its error comes again from Flush
}

func (f *frameWriter) end() {
	le.PutUint32(f.buf[:], f.crc)
	_, _ = f.w.Write(f.buf[:frameTail])
}

// frame writes a frame, and flushes.
func (f *frameWriter) frame(k kind, payload []byte) error {
	f.begin(k, len(payload))
	f.write(payload)
	f.end()
	return f.w.Flush()
}

// frameReader reads frames.
type frameReader struct {
	r       *bufio.Reader
	allowed []kind
	pending int    // bytes of r that the last payload lies in
	large   []byte // holds frames that are larger than r's buffer
}

// newFrameReader reads frames of the kinds that may come.
func newFrameReader(r io.Reader, size int, allowed ...kind) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, size), allowed: allowed}
}

// next returns the next frame. The payload is valid until the call after. The error is
// io.EOF if the connection ended between two frames.
//
// Memory is taken as bytes arrive: for a frame that is announced as large, at most twice
// what has come.
func (f *frameReader) next() (kind, []byte, error) {
	_, _ = f.r.Discard(f.pending) // it was peeked at
	f.pending = 0
	if cap(f.large) > keepLarge {
		f.large = nil
	}
	head, err := f.r.Peek(frameHead)
	if err != nil {
		return 0, nil, torn(err, len(head))
	}
	code, length, ok := frame.ParseHead(head)
	k := kind(code)
	if !ok || !slices.Contains(f.allowed, k) {
		return 0, nil, malformed("kind %d is not expected here", le.Uint32(head[4:]))
	}
	if length > maxPayload[k] {
		return 0, nil, malformed("%d bytes for kind %d, at most %d are possible", length, k, maxPayload[k])
	}
	size := frameHead + int(length) + frameTail
	whole, err := f.take(size)
	if err != nil {
		return 0, nil, err
	}
	if !frame.Sealed(whole) {
		return 0, nil, malformed("its checksum is wrong")
	}
	return k, whole[frameHead : size-frameTail], nil
}

// take returns the next size bytes.
func (f *frameReader) take(size int) ([]byte, error) {
	if size <= f.r.Size() {
		b, err := f.r.Peek(size)
		f.pending = len(b)
		return b, torn(err, len(b))
	}
	f.large = f.large[:0]
	for len(f.large) < size {
		step := min(size-len(f.large), max(len(f.large), bufSize))
		f.large = slices.Grow(f.large, step)
		part := f.large[len(f.large):][:min(size-len(f.large), cap(f.large)-len(f.large))]
		n, err := io.ReadFull(f.r, part)
		f.large = f.large[:len(f.large)+n]
		if err != nil {
			return nil, torn(err, len(f.large))
		}
	}
	return f.large, nil
}

// torn makes an end in the middle of a frame an unexpected one.
func torn(err error, have int) error {
	if err == io.EOF && have > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}
