package engine

import (
	"fmt"
	"slices"
)

// What another server has to know of a session that goes on there.

// Offset is where the last command ends of a session on record that was executed.
func (d *Detached) Offset() uint64 { return d.offset }

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
	case in.id == 0 || in.denied || in.keys != nil:
		return nil, false // its body is discarded, or it has tags
	}
	b = fmt.Appendf(nil, "put %d %d %d %d\r\n", in.pri, in.delay, in.ttr, in.size)
	return append(slices.Grow(b, len(d.arrived)), d.arrived...), true
}
