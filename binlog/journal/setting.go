package journal

// Setting is what is on record of a tube's dead letters. It belongs to the name of the
// tube, whether there is a tube of that name or not.
type Setting struct {
	Tube        string
	MaxAttempts uint32 // attempts with which a job becomes a dead letter; 0 ends the tube's setting
	DeadTube    string // where it goes; empty if MaxAttempts is 0
}
