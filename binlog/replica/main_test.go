package replica

import (
	"testing"

	"go.uber.org/goleak"
)

// No test leaves a goroutine behind: a node that has ended has none.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
