package arena

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const pageSize = 4096

func pageRound(n int) int { return (n + pageSize - 1) &^ (pageSize - 1) }

// mapMemory maps n bytes of zeros. Pages cost memory once they are written.
func mapMemory(n int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w", n, err)
	}
	return mem, nil
}

func unmapMemory(mem []byte) {
	if err := unix.Munmap(mem); err != nil {
		panic(fmt.Sprintf("arena: unmapping %d bytes: %v", len(mem), err))
	}
}
