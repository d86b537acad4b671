package binlog

import "trellis/binlog/journal"

// What the log takes and gives. An owner needs package journal only.
type (
	Pos    = journal.Pos
	State  = journal.State
	Record = journal.Record
	Ticket = journal.Ticket
)

// The states of a job.
const (
	Ready   = journal.Ready
	Buried  = journal.Buried
	Delayed = journal.Delayed
)

// Errors of appends.
var (
	ErrNoSpace = journal.ErrNoSpace
	ErrBusy    = journal.ErrBusy
	ErrFailed  = journal.ErrFailed
	ErrClosed  = journal.ErrClosed
)

func validState(s State) bool { return s == Ready || s == Buried || s == Delayed }

// when is the field that a delayed job uses for its due time and a buried one
// for its order.
func when(r *Record) uint64 {
	switch r.State {
	case Delayed:
		return uint64(r.Due)
	case Buried:
		return r.BuryOrder
	}
	return 0
}

func setWhen(r *Record, v uint64) {
	r.Due, r.BuryOrder = 0, 0
	switch r.State {
	case Delayed:
		r.Due = int64(v)
	case Buried:
		r.BuryOrder = v
	}
}
