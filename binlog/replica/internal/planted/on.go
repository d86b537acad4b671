//go:build planted

package planted

import (
	"net"
	"os"
	"slices"
	"strings"
	"sync"
)

// Has reports whether the environment wants a fault planted: TRELLIS_PLANTED has the names of
// those that are wanted, with commas between them.
func Has(f Fault) bool {
	return slices.Contains(strings.Split(os.Getenv("TRELLIS_PLANTED"), ","), string(f))
}

// Next is a connection as NextWire has it.
func Next(c net.Conn) net.Conn { return inverted{c} }

type inverted struct{ net.Conn }

func (c inverted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	invert(b[:n])
	return n, err
}

func (c inverted) Write(b []byte) (int, error) {
	b = slices.Clone(b)
	invert(b)
	return c.Conn.Write(b)
}

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
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
