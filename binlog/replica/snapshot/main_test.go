package snapshot

import (
	"testing"

	"go.uber.org/goleak"
)

// No test leaves a goroutine behind: the package starts none.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
