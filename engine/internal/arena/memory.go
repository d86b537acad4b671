package arena

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// pageSize is the system's, which is not 4096 on every machine.
var pageSize = unix.Getpagesize()

func pageRound(n int) int { return (n + pageSize - 1) &^ (pageSize - 1) }

// unused are mappings that nobody has a use for, by size. Unmapping them would leave
// holes, and a process may have only so many mappings (vm.max_map_count): at that
// bound not even the garbage collector gets memory. So on Linux their pages are given
// back and their addresses kept, which cost next to nothing.
//
// Giving pages back takes the system long. So whoever frees a block, with a lock held,
// leaves that to GiveBack.
var unused struct {
	mu        sync.Mutex
	discarded map[int][]mapping // those that have pages
	bytes     atomic.Int64      // of pages in discarded; written with mu held
	bare      map[int][]mapping // those that have none
}

// keptTarget is chunkTarget where many engines begin and end: what is taken from the heap is cleared, used or not.
const keptTarget = 8 << 10

// kept says that no system calls are made: see Keep.
var kept bool

// Keep has memory come from the collected heap, and what was discarded be used again without ever being given back. A
// simulation makes no system calls. It is called before anything else here.
func Keep() { kept = true }

// A mapping is memory from the system.
type mapping struct {
	mem   []byte
	pages int // bytes from the first on that may have pages
}

// mapMemory maps n bytes of any content. Pages cost memory once they are written.
// Sizes should be few. Any goroutine may call it.
func mapMemory(n int) ([]byte, error) {
	unused.mu.Lock()
	defer unused.mu.Unlock()
	if m, ok := pop(unused.discarded, n); ok {
		unused.bytes.Add(int64(-m.pages))
		return m.mem, nil
	}
	if m, ok := pop(unused.bare, n); ok {
		return m.mem, nil
	}
	if kept {
		return make([]byte, n), nil
	}
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w", n, err)
	}
	return mem, nil
}

// pop takes a mapping of n bytes out of a set.
func pop(set map[int][]mapping, n int) (m mapping, ok bool) {
	list := set[n]
	if len(list) == 0 {
		return mapping{}, false
	}
	last := len(list) - 1
	m, list[last] = list[last], mapping{}
	if last == 0 {
		delete(set, n)
	} else {
		set[n] = list[:last]
	}
	return m, true
}

// discard leaves a mapping to GiveBack. Any goroutine may call it.
func discard(mem []byte) { keepDiscarded(mapping{mem, len(mem)}) }

func keepDiscarded(m mapping) {
	unused.mu.Lock()
	defer unused.mu.Unlock()
	if unused.discarded == nil {
		unused.discarded, unused.bare = make(map[int][]mapping), make(map[int][]mapping)
	}
	unused.discarded[len(m.mem)] = append(unused.discarded[len(m.mem)], m)
	unused.bytes.Add(int64(m.pages))
}

// Discarded reports whether there is something for GiveBack to do. Any goroutine may
// call it.
func Discarded() bool { return unused.bytes.Load() > 0 && !kept }

// Slice is how many bytes are given back to the system between two polls.
const Slice = 4 << 20

// GiveBack gives the memory of blocks that were freed back to the system, at least one
// page and at most most bytes of it, rounded up to whole pages. It reports whether that
// was all. Any goroutine may call it; it holds no lock while the system
// works.
func GiveBack(most int) (all bool) {
	for most > 0 && !kept {
		m, ok := popDiscarded()
		if !ok {
			return true
		}
		n := min(most, m.pages)
		most -= n
		m.giveBack(n)
	}
	return !Discarded()
}

// popDiscarded takes one of the mappings that have pages.
func popDiscarded() (m mapping, ok bool) {
	unused.mu.Lock()
	defer unused.mu.Unlock()
	for n := range unused.discarded {
		m, ok = pop(unused.discarded, n)
		unused.bytes.Add(int64(-m.pages))
		break
	}
	return m, ok
}

// giveBack gives the last n bytes of a mapping's pages back, rounded up to whole pages.
func (m mapping) giveBack(n int) {
	if runtime.GOOS != "linux" {
		// Elsewhere the advice may be followed later, or not at all.
		if err := unix.Munmap(m.mem); err != nil {
			panic(fmt.Sprintf("arena: unmapping %d bytes: %v", len(m.mem), err))
		}
		return
	}
	from := (m.pages - n) &^ (pageSize - 1)
	if err := unix.Madvise(m.mem[from:m.pages], unix.MADV_DONTNEED); err != nil {
		panic(fmt.Sprintf("arena: giving back %d bytes: %v", m.pages-from, err))
	}
	if m.pages = from; m.pages > 0 {
		keepDiscarded(m)
		return
	}
	unused.mu.Lock()
	defer unused.mu.Unlock()
	unused.bare[len(m.mem)] = append(unused.bare[len(m.mem)], m)
}
