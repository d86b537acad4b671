package wire

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"

	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire/frame"
)

// purpose is what a connection is for. Its values are on the wire.
type purpose uint8

const (
	purposeAppends  purpose = 1 + iota // the lane of appends
	purposeRest                        // the lane of all other messages
	purposeSnapshot                    // one snapshot stream
	purposeControl                     // one control request
	purposeTrunk                       // a trunk of a gateway, see Trunk
)

const lanes = 2 // purposeAppends and purposeRest

func (p purpose) String() string {
	names := [...]string{
		purposeAppends: "appends", purposeRest: "other messages", purposeSnapshot: "snapshot",
		purposeControl: "control", purposeTrunk: "trunks",
	}
	if p < purposeAppends || int(p) >= len(names) {
		return fmt.Sprintf("purpose %d", uint8(p))
	}
	return names[p]
}

const (
	magic     = "TRELPEER"
	helloHead = 72
	replyHead = 12
	maxReason = 255
)

// hello is what the side that has dialled sends first.
type hello struct {
	speaks  versions // by the side that has dialled
	purpose purpose
	cluster member.ClusterID
	from    member.Member
	index   uint64 // of an entry as of which the sender is a member, 0 if it knows of none
	to      station

	cert    *x509.Certificate // of the side that has dialled; nil without TLS; not on the wire
	release func()            // gives back the slot of acquire; nil without one; not on the wire
}

// station is the directory that a hello is meant for.
type station struct {
	id          member.ID
	incarnation member.Incarnation
}

func stationOf(m member.Member) station { return station{m.ID, m.Incarnation} }

func (h hello) encode() []byte {
	b := make([]byte, helloHead, helloHead+len(h.from.Name)+len(h.from.Addr)+frameTail)
	copy(b, magic)
	le.PutUint16(b[8:], h.speaks.lowest)
	b[10], b[11] = byte(h.purpose), byte(len(h.from.Name))
	le.PutUint16(b[12:], uint16(len(h.from.Addr)))
	if h.speaks.highest > h.speaks.lowest {
		le.PutUint16(b[14:], h.speaks.highest)
	}
	copy(b[16:], h.cluster[:])
	le.PutUint64(b[32:], uint64(h.from.ID))
	le.PutUint64(b[40:], uint64(h.from.Incarnation))
	le.PutUint64(b[48:], h.index)
	le.PutUint64(b[56:], uint64(h.to.id))
	le.PutUint64(b[64:], uint64(h.to.incarnation))
	b = append(b, h.from.Name...)
	b = append(b, h.from.Addr...)
	return frame.Seal(b, 0)
}

// errHello tells of a connection that did not begin as one of this protocol.
var errHello = errors.New("not a connection of this protocol")

// readHello reads a hello, for a side that speaks those versions. One of a side that speaks
// none of them is returned with nothing but what that one speaks.
func readHello(r io.Reader, ours versions) (h hello, err error) {
	b := make([]byte, helloHead+member.MaxName+member.MaxAddr+frameTail)
	if _, err := io.ReadFull(r, b[:len(magic)]); err != nil {
		return h, err
	}
	if string(b[:len(magic)]) != magic {
		return h, errHello
	}
	if _, err := io.ReadFull(r, b[len(magic):helloHead]); err != nil {
		return h, torn(err, len(magic))
	}
	name, addr := int(b[11]), int(le.Uint16(b[12:]))
	if name > member.MaxName || addr > member.MaxAddr {
		return h, fmt.Errorf("%w: a name of %d bytes and an address of %d", errHello, name, addr)
	}
	end := helloHead + name + addr
	if _, err := io.ReadFull(r, b[helloHead:end+frameTail]); err != nil {
		return h, torn(err, helloHead)
	}
	if !frame.Sealed(b[:end+frameTail]) {
		return h, fmt.Errorf("%w: its checksum is wrong", errHello)
	}
	h.speaks.lowest = le.Uint16(b[8:])
	h.speaks.highest = h.speaks.lowest
	if highest := le.Uint16(b[14:]); highest > 0 {
		h.speaks.highest = highest
	}
	if h.speaks.highest < h.speaks.lowest {
		return h, fmt.Errorf("%w: it speaks %s", errHello, h.speaks)
	}
	if ours.agreed(h.speaks) == 0 {
		return h, nil
	}
	h.purpose = purpose(b[10])
	if h.purpose < purposeAppends || h.purpose > purposeTrunk ||
		h.purpose == purposeTrunk && ours.agreed(h.speaks) < trunksSince {
		return h, fmt.Errorf("%w: %s", errHello, h.purpose)
	}
	copy(h.cluster[:], b[16:])
	h.from = member.Member{
		ID: member.ID(le.Uint64(b[32:])), Incarnation: member.Incarnation(le.Uint64(b[40:])),
		Name: string(b[helloHead : helloHead+name]), Addr: string(b[helloHead+name : end]),
	}
	h.index = le.Uint64(b[48:])
	h.to = station{member.ID(le.Uint64(b[56:])), member.Incarnation(le.Uint64(b[64:]))}
	return h, nil
}

// status is the answer to a hello. Its values are on the wire.
type status uint8

const (
	welcome status = iota
	refused
	notMember // the side that has dialled is a member no more
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

// encodeReply is the answer to a hello, with the version of the connection that follows or, of a
// refusal, with the highest one that is spoken.
func encodeReply(version uint16, s status, reason string) []byte {
	reason = reason[:min(len(reason), maxReason)]
	b := make([]byte, replyHead, replyHead+len(reason)+frameTail)
	copy(b, magic)
	le.PutUint16(b[8:], version)
	b[10], b[11] = byte(s), byte(len(reason))
	b = append(b, reason...)
	return frame.Seal(b, 0)
}

// readReply reads the answer to a hello of a side that speaks those versions: the version of
// the connection that follows. An error is a *refusal, or tells why there is no answer.
func readReply(r io.Reader, ours versions) (version uint16, err error) {
	b := make([]byte, replyHead+maxReason+frameTail)
	if _, err := io.ReadFull(r, b[:replyHead]); err != nil {
		return 0, err
	}
	if string(b[:len(magic)]) != magic {
		return 0, errHello
	}
	end := replyHead + int(b[11])
	if _, err := io.ReadFull(r, b[replyHead:end+frameTail]); err != nil {
		return 0, torn(err, replyHead)
	}
	if !frame.Sealed(b[:end+frameTail]) {
		return 0, fmt.Errorf("%w: its checksum is wrong", errHello)
	}
	if s := status(b[10]); s != welcome {
		return 0, &refusal{s, printable(b[replyHead:end])}
	}
	if version = le.Uint16(b[8:]); ours.agreed(versions{version, version}) == 0 {
		return 0, fmt.Errorf("%w: it welcomes in version %d", errHello, version)
	}
	return version, nil
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
