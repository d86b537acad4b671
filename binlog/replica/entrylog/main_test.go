package entrylog

import (
	"testing"

	"go.uber.org/goleak"
)

// No test leaves a goroutine behind: a log that was closed has none.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
