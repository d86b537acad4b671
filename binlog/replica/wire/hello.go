package wire

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"trellis/binlog/replica/member"
)

// purpose is what a connection is for. Its values are on the wire.
type purpose uint8

const (
	purposeAppends  purpose = 1 + iota // the lane of appends
	purposeRest                        // the lane of all other messages
	purposeSnapshot                    // one snapshot stream
	purposeControl                     // one control request
)

const lanes = 2 // purposeAppends and purposeRest

func (p purpose) String() string {
	switch p {
	case purposeAppends:
		return "appends"
	case purposeRest:
		return "other messages"
	case purposeSnapshot:
		return "snapshot"
	case purposeControl:
		return "control"
	}
	return fmt.Sprintf("purpose %d", uint8(p))
}

const (
	magic     = "TRELPEER"
	version   = 1
	helloSize = 68
	replyHead = 12
	maxReason = 255
)

// hello is the first that the side sends that has dialled.
type hello struct {
	version uint16
	purpose purpose
	cluster member.ClusterID
	from    station
	to      station

	admitted func() // leaves the place that the connection has; not on the wire
}

// station is who a member is, for a handshake.
type station struct {
	id          member.ID
	incarnation member.Incarnation
}

func stationOf(m member.Member) station { return station{m.ID, m.Incarnation} }

func (h hello) encode() []byte {
	b := make([]byte, helloSize)
	copy(b, magic)
	le.PutUint16(b[8:], h.version)
	b[10] = byte(h.purpose)
	copy(b[16:], h.cluster[:])
	le.PutUint64(b[32:], uint64(h.from.id))
	le.PutUint64(b[40:], uint64(h.from.incarnation))
	le.PutUint64(b[48:], uint64(h.to.id))
	le.PutUint64(b[56:], uint64(h.to.incarnation))
	le.PutUint32(b[64:], crc32.Checksum(b[:64], castagnoli))
	return b
}

// errHello tells of a connection that did not begin as one of this protocol.
var errHello = errors.New("not a connection of this protocol")

// readHello reads a hello. Of a later version it is only known that it is one.
func readHello(r io.Reader) (h hello, err error) {
	var b [helloSize]byte
	if _, err := io.ReadFull(r, b[:len(magic)]); err != nil {
		return h, err
	}
	if string(b[:len(magic)]) != magic {
		return h, errHello
	}
	if _, err := io.ReadFull(r, b[len(magic):]); err != nil {
		return h, torn(err, len(magic))
	}
	if le.Uint32(b[64:]) != crc32.Checksum(b[:64], castagnoli) {
		return h, fmt.Errorf("%w: its checksum is wrong", errHello)
	}
	h.version = le.Uint16(b[8:])
	if h.version != version {
		return h, nil
	}
	h.purpose = purpose(b[10])
	if h.purpose < purposeAppends || h.purpose > purposeControl || [5]byte(b[11:16]) != [5]byte{} {
		return h, fmt.Errorf("%w: %s", errHello, h.purpose)
	}
	copy(h.cluster[:], b[16:])
	h.from = station{member.ID(le.Uint64(b[32:])), member.Incarnation(le.Uint64(b[40:]))}
	h.to = station{member.ID(le.Uint64(b[48:])), member.Incarnation(le.Uint64(b[56:]))}
	return h, nil
}

// status is the answer to a hello. Its values are on the wire.
type status uint8

const (
	welcome status = iota
	refused
	notMember // the side that has dialled is no member, as far as the other knows
)

// refusal is why the other side refuses a connection.
type refusal struct {
	status status
	reason string
}

func (r *refusal) Error() string { return r.reason }

func refuse(s status, format string, args ...any) *refusal {
	return &refusal{s, fmt.Sprintf(format, args...)}
}

func encodeReply(s status, reason string) []byte {
	reason = reason[:min(len(reason), maxReason)]
	b := make([]byte, replyHead, replyHead+len(reason)+frameTail)
	copy(b, magic)
	le.PutUint16(b[8:], version)
	b[10], b[11] = byte(s), byte(len(reason))
	b = append(b, reason...)
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// readReply reads the answer to a hello: nil is a welcome.
func readReply(r io.Reader) error {
	b := make([]byte, replyHead+maxReason+frameTail)
	if _, err := io.ReadFull(r, b[:replyHead]); err != nil {
		return err
	}
	if string(b[:len(magic)]) != magic {
		return errHello
	}
	end := replyHead + int(b[11])
	if _, err := io.ReadFull(r, b[replyHead:end+frameTail]); err != nil {
		return torn(err, replyHead)
	}
	if le.Uint32(b[end:]) != crc32.Checksum(b[:end], castagnoli) {
		return fmt.Errorf("%w: its checksum is wrong", errHello)
	}
	if s := status(b[10]); s != welcome {
		return &refusal{s, printable(b[replyHead:end])}
	}
	if v := le.Uint16(b[8:]); v != version {
		return fmt.Errorf("%w: it welcomes in version %d", errHello, v)
	}
	return nil
}

// printable is a text of another node as a log may have it.
func printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return '?'
		}
		return r
	}, string(b))
}
