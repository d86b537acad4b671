package snapshot

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// No test leaves a goroutine behind: the package starts none.
func TestMain(m *testing.M) {
	if !proof {
		_ = flag.Set("rapid.checks", "15")
	}
	goleak.VerifyTestMain(m)
}
