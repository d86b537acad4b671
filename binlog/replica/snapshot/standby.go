package snapshot

import (
	"trellis/binlog/journal"
	"trellis/binlog/record"
)

// Standby takes the jobs and settings of a snapshot, in the order in which they were written.
// No method keeps its argument or the body in it after it has returned.
type Standby interface {
	// Full takes the whole state of a job, or a tombstone, which replaces what was told of
	// it before. Of a job that Load tells r.Absent of, the body is in a body file, at place: it comes before what
	// else is told of the job.
	Full(r *journal.Record, place journal.Place) (replaced journal.Former, err error)

	// Update takes a later state of a job: all fields but Tube, TTR, Created, Body and
	// Keys. An id that is not known is to be ignored: the job's end follows, or is part of
	// what the snapshot was made of.
	Update(r *journal.Record) error

	// Delete takes the end of a job, which may not be known.
	Delete(id uint64) (segment uint32)

	// Setting takes a tube's setting, which replaces what was told of it before, or its end.
	Setting(s *journal.Setting) error

	// Hold takes a reservation that is on record. An id that is not known is to be ignored, as
	// by Update.
	Hold(h *journal.Hold) error

	// Close takes the end of a session, whose jobs are ready then. It may not be known.
	Close(session uint64) error

	// Numbers takes numbers of loops that were given, or are gone.
	Numbers(n *journal.Numbers) error
}

// Decoder tells a Standby what records say. It is for one goroutine; the zero Decoder is ready.
type Decoder struct {
	rec   journal.Record
	names record.Names
	fulls int
}

// namesTurn is how many full records share a cache of tubes' names. An older cache would
// hold the names of many tubes that are gone.
const namesTurn = 1 << 16

// turn counts a full record.
func (d *Decoder) turn() {
	if d.fulls++; d.fulls%namesTurn == 0 {
		d.names = record.Names{}
	}
}

// Tell tells what a sound record of a job or of a setting says. known is false if that is the
// end of a job that the Standby does not know.
func (d *Decoder) Tell(b []byte, segment uint32, to Standby) (known bool, err error) {
	switch record.KindOf(b) {
	case record.Full:
		d.turn()
		record.DecodeFull(b, &d.rec, &d.names)
		_, err = to.Full(&d.rec, journal.Place{Segment: segment})
	case record.Update:
		record.DecodeUpdate(b, &d.rec)
		err = to.Update(&d.rec)
	case record.Setting, record.Policy:
		s := record.DecodeSetting(b)
		err = to.Setting(&s)
	case record.Hold:
		h := record.DecodeHold(b)
		err = to.Hold(&h)
	case record.Close:
		err = to.Close(record.Number(b))
	case record.Numbers:
		n := record.DecodeNumbers(b)
		err = to.Numbers(&n)
	default:
		return to.Delete(record.Number(b)) != 0, nil
	}
	return true, err
}

// Copier is a Standby, and a Restorer of package binlog, that writes what it is told into a
// snapshot.
type Copier struct {
	w   *Writer
	err error // of the first delete that could not be written
}

// Copier returns what writes into w.
func (w *Writer) Copier() *Copier { return &Copier{w: w} }

// Full implements Standby.
func (c *Copier) Full(r *journal.Record, _ journal.Place) (journal.Former, error) {
	x := *r
	x.Origin = journal.Origin{} // a snapshot tells of no commands
	return journal.Former{}, c.w.Full(&x)
}

// Update implements Standby.
func (c *Copier) Update(r *journal.Record) error {
	x := *r
	x.Origin = journal.Origin{}
	return c.w.Update(&x)
}

// Setting implements Standby.
func (c *Copier) Setting(s *journal.Setting) error {
	x := *s
	x.Origin = journal.Origin{}
	return c.w.Setting(&x)
}

// Hold implements Standby.
func (c *Copier) Hold(h *journal.Hold) error {
	x := *h
	x.Offset, x.Touch = 0, false
	return c.w.Hold(&x)
}

// Close implements Standby.
func (c *Copier) Close(session uint64) error { return c.w.Close(session) }

// Numbers implements Standby.
func (c *Copier) Numbers(n *journal.Numbers) error { return c.w.Numbers(n) }

// Delete implements Standby. Err has its error.
func (c *Copier) Delete(id uint64) uint32 {
	if err := c.w.Delete(id); c.err == nil {
		c.err = err
	}
	return 1
}

// Err tells why a delete could not be written, nil if all were.
func (c *Copier) Err() error { return c.err }
