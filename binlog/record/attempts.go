package record

import "trellis/binlog/journal"

// A state's byte has flags above the state. Each says that the record has an optional
// field, which is left out while its value can be told from the others.
const (
	attemptsFlag = 1 << 3 // attempts, which are not what journal.Record.UsualAttempts tells
	keysFlag     = 1 << 4 // keys, only in a full record
	flags        = attemptsFlag | keysFlag

	attemptsSize   = 4 // bytes in a full record
	updateAttempts = 8 // bytes in an update, so that its length stays a multiple of eight
)

// stateIn is the state in a state's byte.
func stateIn(b byte) journal.State { return journal.State(b &^ flags) }

// attemptsIn is how many bytes attempts take in a full record whose state's byte is b.
func attemptsIn(b byte) int {
	if b&attemptsFlag != 0 {
		return attemptsSize
	}
	return 0
}

// SizeOfUpdate is the length in bytes of the update record of r.
func SizeOfUpdate(r *journal.Record) int64 {
	if r.Optional() > 0 {
		return UpdateSize + updateAttempts
	}
	return UpdateSize
}

// usualAttempts is journal.Record.UsualAttempts of a record in which timeouts, releases,
// buries and kicks stand at the start of b.
func usualAttempts(b []byte) uint32 {
	r := journal.Record{Timeouts: le.Uint32(b), Releases: le.Uint32(b[4:]), Kicks: le.Uint32(b[12:])}
	return r.UsualAttempts()
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
