package metrics

import (
	"runtime"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestTheMemoryLimitIsTheLeastOfMachineAndControlGroups(t *testing.T) {
	none := func() (uint64, error) { return 0, memlimit.ErrNoLimit }
	for name, tt := range map[string]struct {
		machine, group memlimit.Provider
		want           int64
	}{
		"nothing is known":   {none, none, 0},
		"no limit":           {memlimit.Limit(1 << 20), none, 1 << 20},
		"less than there is": {memlimit.Limit(1 << 20), memlimit.Limit(4096), 4096},
		"more than there is": {memlimit.Limit(1 << 20), memlimit.Limit(1 << 30), 1 << 20},
		"machine unknown":    {none, memlimit.Limit(4096), 4096},
	} {
		if got := leastLimit(tt.machine, tt.group); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
	if runtime.GOOS == "linux" && MemoryLimit() <= 0 {
		t.Error("the memory of this machine is not known")
	}
}
