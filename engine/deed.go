package engine

import "trellis/codec"

// A Deed is a command of which an operator may want to know later who has given it: one
// that deletes or moves what is others', or changes how the server serves them; or any
// command that was denied. See Config.Audit.
type Deed struct {
	Client string // its name, "" for one that did not have to say who it is
	Op     codec.Op
	// Tube is what it was done to, and To where jobs were moved; "" where there is none. It is
	// the tube of the job where a job was not found because its tube is not the client's. Of a
	// name that begins with TokenTube no more is told: a token may stand there.
	Tube, To string
	ID       uint64 // of the job or connection; 0 where there is none
	// Result is the first line of the reply, or Unfinished. The reply may still wait for the
	// journal.
	Result string
	Denied bool // the client had no right to it

	from interface{ address() string } // the session
	peer string                        // its address, if it was asked for already
}

// Unfinished is the result of a command whose client has gone before it was answered. A part of it
// may have been done.
const Unfinished = "(unfinished)"

// At returns the deed of a client at an address. It is for one of which another server has told.
func (d Deed) At(peer string) Deed {
	d.peer = peer
	return d
}

// Peer is the address of the client, "" if it cannot be told. It is for the function that is
// given the Deed.
func (d *Deed) Peer() string {
	if d.peer == "" && d.from != nil {
		d.peer = d.from.address()
	}
	return d.peer
}
