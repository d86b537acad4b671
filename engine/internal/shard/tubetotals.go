package shard

// tubeTotals is what few tubes have to count, since the tube came into being. The lock of the
// tube's shard guards it.
type tubeTotals struct {
	reserves, releases, timeouts, buries uint64
	deadLetters                          uint64 // jobs of the tube whose attempts were used up
	expired                              uint64 // jobs of the tube
	flushed                              uint64 // of tube.deletes

	// wait is for how many microseconds those jobs were ready that were reserved then.
	wait uint64
	// busy is the microseconds for which jobs were reserved, less the times at which those
	// that still are became so. It wraps around.
	busy uint64
}

// totals returns what the tube counts, to be added to.
func (t *tube) totals() *tubeTotals {
	if t.total == nil {
		t.total = new(tubeTotals)
	}
	return t.total
}
