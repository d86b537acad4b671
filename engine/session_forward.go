package engine

import (
	"fmt"
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
	in := d.incoming
	switch {
	case in == nil:
		return nil, true
	case in.id == 0:
		return nil, false // its body is discarded
	}
	b = fmt.Appendf(nil, "put %d %d %d %d", in.pri, in.delay, in.ttr, in.size)
	b = append(in.appendTags(b), "\r\n"...)
	if len(b) > codec.MaxLine {
		return nil, false // it expires by the setting of its tube, for which there is no room in the line
	}
	return append(slices.Grow(b, len(d.arrived)), d.arrived...), true
}

// appendTags appends the tags of a put.
func (in *incoming) appendTags(b []byte) []byte {
	if in.timed && (in.keys == nil || in.keys.Terms == nil) {
		b = append(b, " exp:0"...)
	}
	k := in.keys
	if k == nil {
		return b
	}
	if k.Unique != "" {
		b = fmt.Appendf(b, " idp:%s:%d", k.Unique, k.Seconds)
	}
	if k.Limited != "" {
		b = fmt.Appendf(b, " con:%s:%d", k.Limited, k.Limit)
	}
	t := k.Terms
	if t == nil {
		return b
	}
	for _, x := range [...]struct{ tag, name string }{{" fair:", t.Fair}, {" grp:", t.Group}, {" aft:", t.After}} {
		if x.name != "" {
			b = append(append(b, x.tag...), x.name...)
		}
	}
	if t.Settled {
		b = append(b, ":settled"...)
	}
	if in.timed {
		b = fmt.Appendf(b, " exp:%d", t.Expires)
	}
	return b
}
