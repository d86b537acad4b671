package entrylog

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// No test leaves a goroutine behind: a log that was closed has none.
func TestMain(m *testing.M) {
	if !proof {
		_ = flag.Set("rapid.checks", "20")
	}
	goleak.VerifyTestMain(m)
}
