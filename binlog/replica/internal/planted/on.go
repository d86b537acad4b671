//go:build planted

package replica

import "os"

// planted tells whether the environment wants a fault planted: TRELLIS_PLANTED is its name.
func planted(f fault) bool { return os.Getenv("TRELLIS_PLANTED") == string(f) }
