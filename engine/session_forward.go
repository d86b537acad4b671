package engine

import (
	"slices"

	"trellis/codec"
)

// What another server has to know of a session that goes on there.

// Offset is where in the input of a session on record the last command ended of which a record tells, or what EndsAt
// has said: no record tells of what it sends behind that.
func (d *Detached) Offset() uint64 { return d.offset }

// EndsAt says how much of the input of a session on record is known elsewhere. Nobody has to be told again what
// commands do that its client sends to this server.
func (d *Detached) EndsAt(offset uint64) { d.offset = offset }

// Handed is the job that has ended the session's wait, and of which the client was not told: it has it, on record. It
// is 0 for none.
func (d *Detached) Handed() uint64 { return d.handed }

// Put is what the client has sent of a put in part, the end of whose body has not begun. It is nil without one. It
// reports false if that is not known any more.
func (d *Detached) Put() (b []byte, ok bool) {
	switch {
	case d.putDenied:
		return nil, false // its body is discarded
	case d.incoming == nil:
		return nil, true
	}
	if b, ok = d.incoming.AppendCommand(nil); !ok {
		return nil, false
	}
	if b = append(b, "\r\n"...); len(b) > codec.MaxLine {
		return nil, false // it expires by the setting of its tube, for which there is no room in the line
	}
	return append(slices.Grow(b, len(d.arrived)), d.arrived...), true
}
