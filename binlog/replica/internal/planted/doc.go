// Package planted has mistakes in the rules that packages replica and member argue with. A
// program that is built with the tag planted can be told to make one of them, so that tests
// can show that they would find it. No other program has them.
//
// Tests of the packages find all but NoHolds, which clients of three processes find. The simulator
// (cmd/trellisd/faults) finds all but WipedVotes by what its clients see.
//
// OldTerm alone changes nothing: a leader proposes a batch once, and while it leads in the
// batch's term, so that no entry has a batch of an old term. ProposedAgain breaks
// that rule, and alone changes nothing either: the batch is in the log, and everybody
// ignores it. Clients see a difference if both are wanted.
package planted

// Fault is a mistake. Its text is what the environment variable has that wants it.
type Fault string

const (
	// NoRound: a leader answers what only reads without asking whether it leads.
	NoRound Fault = "no-round"
	// EarlyAnswer: votes and acknowledgements go to others before what they promise is on disk.
	EarlyAnswer Fault = "early-answer"
	// OldTerm: a batch counts although another leader has been elected since it was sealed,
	// and although batches of that one came before it.
	OldTerm Fault = "old-term"
	// ProposedAgain: a leader that is deposed keeps the batches that were on their way,
	// and proposes them once more when it is elected again.
	ProposedAgain Fault = "proposed-again"
	// WipedVotes: a node whose directory was emptied takes the identity of the member that
	// it was, and votes.
	WipedVotes Fault = "wiped-votes"
	// NoHolds: a standby knows of no reservations.
	NoHolds Fault = "no-holds"
	// NoEffects: the queue does not hear what entries have done.
	NoEffects Fault = "no-effects"

	// NextWire is no mistake: the program speaks a later version of the protocol between members
	// too, which has all bytes behind the handshake inverted.
	NextWire Fault = "next-wire"
	// NextWireOnly: it speaks no other.
	NextWireOnly Fault = "next-wire-only"
)
