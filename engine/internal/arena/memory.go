package arena

import (
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

const pageSize = 4096

func pageRound(n int) int { return (n + pageSize - 1) &^ (pageSize - 1) }

// idle are mappings whose pages were given back, by size. To unmap them would
// make holes, and a process may have so many of those only (vm.max_map_count):
// beyond that not even the collector gets memory. Addresses without pages cost
// next to nothing.
var idle struct {
	mu     sync.Mutex
	bySize map[int][][]byte
}

// mapMemory maps n bytes of any content. Pages cost memory once they are written.
// Sizes should be few. Any goroutine may call it.
func mapMemory(n int) ([]byte, error) {
	idle.mu.Lock()
	defer idle.mu.Unlock()
	if list := idle.bySize[n]; len(list) > 0 {
		mem := list[len(list)-1]
		idle.bySize[n] = list[:len(list)-1]
		return mem, nil
	}
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w", n, err)
	}
	return mem, nil
}

// unmapMemory gives memory back. Any goroutine may call it.
func unmapMemory(mem []byte) {
	if runtime.GOOS != "linux" {
		// Elsewhere the advice may be followed later, or not at all.
		if err := unix.Munmap(mem); err != nil {
			panic(fmt.Sprintf("arena: unmapping %d bytes: %v", len(mem), err))
		}
		return
	}
	if err := unix.Madvise(mem, unix.MADV_DONTNEED); err != nil {
		panic(fmt.Sprintf("arena: giving back %d bytes: %v", len(mem), err))
	}
	idle.mu.Lock()
	defer idle.mu.Unlock()
	if idle.bySize == nil {
		idle.bySize = make(map[int][][]byte)
	}
	idle.bySize[len(mem)] = append(idle.bySize[len(mem)], mem)
}
