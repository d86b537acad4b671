//go:build planted

package planted

import "os"

// Has tells whether the environment wants a fault planted: TRELLIS_PLANTED is its name.
func Has(f Fault) bool { return os.Getenv("TRELLIS_PLANTED") == string(f) }
