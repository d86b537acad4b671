package trunk

import (
	"slices"

	"trellis/binlog/replica/wire/frame"
)

const (
	// FrameKind is the kind of all frames on a trunk.
	FrameKind = 9
	// MaxPayload is the most bytes of items in a frame.
	MaxPayload = 32 << 10

	maxFrame = frame.Head + MaxPayload + frame.Tail
)

// keepBuffer is the most memory that an empty Writer keeps.
const keepBuffer = 1 << 20

// Writer makes frames of items. Its zero value is empty.
type Writer struct {
	buf  []byte // frames, the last of which may lack its end
	sent int    // how many bytes of buf have been sent
	at   int    // where in buf the last frame begins
	open bool   // it lacks its end
}

// Add appends an item. Its data are copied.
func (w *Writer) Add(it *Item) {
	if w.open && len(w.buf)-w.at-frame.Head+ItemHead+len(it.Data) > MaxPayload {
		w.seal()
	}
	if !w.open {
		w.begin()
	}
	w.buf = appendItem(w.buf, it)
}

// Pulse appends a frame without items.
func (w *Writer) Pulse() {
	if w.open {
		w.seal()
	}
	w.begin()
}

func (w *Writer) begin() {
	w.at, w.open = len(w.buf), true
	w.buf = append(w.buf, make([]byte, frame.Head)...)
}

func (w *Writer) seal() {
	frame.PutHead(w.buf[w.at:], FrameKind, len(w.buf)-w.at-frame.Head)
	w.buf = frame.Seal(w.buf, w.at)
	w.open = false
}

// Len is how many bytes are to be sent, but for the end of the last frame.
func (w *Writer) Len() int { return len(w.buf) - w.sent }

// Bytes ends the last frame, and returns all that is to be sent. It is valid until the next call.
func (w *Writer) Bytes() []byte {
	if w.open {
		w.seal()
	}
	return w.buf[w.sent:]
}

// Sent drops the first n bytes of what Bytes has returned.
func (w *Writer) Sent(n int) {
	switch w.sent += n; {
	case w.sent == len(w.buf):
		w.buf, w.sent = w.buf[:0], 0
		if cap(w.buf) > keepBuffer {
			w.buf = nil
		}
	case w.sent > len(w.buf)/2:
		w.buf = w.buf[:copy(w.buf, w.buf[w.sent:])]
		w.at -= w.sent
		w.sent = 0
	}
}

// Reader takes apart what comes from the other side of a trunk, in whatever pieces. Make one with
// NewReader.
type Reader struct {
	from  Side
	part  []byte // a frame that comes in parts
	taken bool   // it has come
	items []byte // of the last whole frame, those that were not taken
}

// NewReader returns a reader of what one side sends.
func NewReader(from Side) Reader { return Reader{from: from} }

// Take takes the first item of what has come: p, behind what was left of earlier ones. It returns
// what is left of p, which is nothing if no item is whole. The item's data lie in p or in the reader, and are valid
// until the next call. An error is final.
//
//	for more := true; more && err == nil; {
//		p, more, err = r.Take(p, &it)
//	}
func (r *Reader) Take(p []byte, it *Item) (rest []byte, ok bool, err error) {
	for len(r.items) == 0 {
		var whole []byte
		if whole, p, err = r.next(p); whole == nil {
			return nil, false, err
		}
		if !frame.Sealed(whole) {
			return nil, false, malformed("the checksum of a frame is wrong")
		}
		r.items = whole[frame.Head : len(whole)-frame.Tail]
	}
	n, err := it.take(r.items, r.from)
	if err != nil {
		return nil, false, err
	}
	r.items = r.items[n:]
	return p, true, nil
}

// next cuts the next frame off what has come, nil if it is not whole.
func (r *Reader) next(p []byte) (whole, rest []byte, err error) {
	if r.taken {
		r.part, r.taken = r.part[:0], false
	}
	if len(r.part) == 0 {
		n, err := frameSize(p)
		switch {
		case err != nil:
			return nil, nil, err
		case n > 0 && n <= len(p):
			return p[:n], p[n:], nil
		case len(p) > 0:
			r.part = append(slices.Grow(r.part, maxFrame), p...)
		}
		return nil, nil, nil
	}
	p = r.fill(p, frame.Head)
	n, err := frameSize(r.part)
	if err != nil || n == 0 {
		return nil, nil, err
	}
	if p = r.fill(p, n); len(r.part) < n {
		return nil, nil, nil
	}
	r.taken = true
	return r.part, p, nil
}

// fill takes of p what part lacks to n bytes, and returns the rest.
func (r *Reader) fill(p []byte, n int) []byte {
	k := max(0, min(n-len(r.part), len(p)))
	r.part = append(r.part, p[:k]...)
	return p[k:]
}

// frameSize is the size of the frame that begins with b, 0 if its head is not whole.
func frameSize(b []byte) (int, error) {
	if len(b) < frame.Head {
		return 0, nil
	}
	kind, length, ok := frame.ParseHead(b)
	if !ok || kind != FrameKind || length > MaxPayload {
		return 0, malformed("a frame of kind %d with %d bytes", kind, length)
	}
	return frame.Head + int(length) + frame.Tail, nil
}
