package metrics

import "github.com/KimMachineGun/automemlimit/memlimit"

// MemoryLimit is how much memory the process can have, in bytes: the machine's, or less if a control
// group allows less. It is 0 if neither is known.
func MemoryLimit() int64 { return leastLimit(memlimit.FromSystem, memlimit.FromCgroup) }

func leastLimit(providers ...memlimit.Provider) int64 {
	least := uint64(0)
	for _, limit := range providers {
		if n, err := limit(); err == nil && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return int64(least)
}
