//go:build planted

package planted

import (
	"os"
	"slices"
	"strings"
	"sync"
)

// Has tells whether the environment wants a fault planted: TRELLIS_PLANTED has the names of
// those that are wanted, with commas between them.
func Has(f Fault) bool {
	return slices.Contains(strings.Split(os.Getenv("TRELLIS_PLANTED"), ","), string(f))
}

var kept struct {
	sync.Mutex
	batches [][]byte
}

// Keep keeps a batch for ProposedAgain. Nobody changes it any more.
func Keep(batch []byte) {
	kept.Lock()
	defer kept.Unlock()
	kept.batches = append(kept.batches, batch)
}

// Kept returns the batches that were kept, and removes them.
func Kept() [][]byte {
	kept.Lock()
	defer kept.Unlock()
	batches := kept.batches
	kept.batches = nil
	return batches
}
