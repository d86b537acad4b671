package binlog

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// No test leaves a goroutine behind: a log that was closed has none.
func TestMain(m *testing.M) {
	_ = flag.Set("rapid.seed", "1") // others are for those who look for faults
	if !proof {
		_ = flag.Set("rapid.checks", "40")
	}
	goleak.VerifyTestMain(m)
}
