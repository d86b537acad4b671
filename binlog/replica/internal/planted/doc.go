// Package planted has mistakes in the rules that packages replica and member argue with. A
// program that is built with the tag planted can be told to make one of them, so that tests
// can show that they would find it. No other program has them.
//
// All but OldReign are also found from outside, by what clients of three processes see.
// OldReign is found within a process only: from outside one would have to depose a leader
// between two steps.
package planted

// Fault is a mistake. Its text is the value of the environment variable that wants it.
type Fault string

const (
	// NoRound: a leader answers what only reads without asking whether it leads.
	NoRound Fault = "no-round"
	// EarlyAnswer: votes and acknowledgements go to others before what they promise is on disk.
	EarlyAnswer Fault = "early-answer"
	// OldReign: a batch counts although another leader has been elected since it was sealed.
	OldReign Fault = "old-reign"
	// WipedVotes: a node whose directory was emptied takes the identity of the member that
	// it was, and votes.
	WipedVotes Fault = "wiped-votes"
)
