package replica

// fault is a mistake in the rules that doc.go argues with. A program that is built with the
// tag planted can be told to make it, so that tests can show that they would find it. No
// other program has it.
type fault string

const (
	// noRound: a leader answers what only reads without asking whether it leads.
	noRound fault = "no-round"
	// earlyAnswer: votes and acknowledgements leave before what they promise is on disk.
	earlyAnswer fault = "early-answer"
	// oldReign: a batch counts although another leader has been elected since it was sealed.
	oldReign fault = "old-reign"
)
