package engine

import (
	"sync/atomic"
	"unsafe"

	"trellis/engine/internal/arena"
)

// Limits bound what clients can make the engine hold. Zero means no limit.
type Limits struct {
	// Memory is how many bytes jobs may take: records, bodies, and bodies that
	// are arriving. A put beyond it is answered OUT_OF_MEMORY and changes
	// nothing. Jobs that are restored from a journal count, and are not refused.
	Memory int64
	// Tubes is the number of tubes, beyond which use and watch of a new one are
	// answered OUT_OF_MEMORY.
	Tubes int
	// Watched is the number of tubes that one client may watch, beyond which a
	// watch is answered OUT_OF_MEMORY.
	Watched int
}

// usage is what is held of what Limits bound, and how often that was too much.
type usage struct {
	memory                                       atomic.Int64 // bytes of jobs; counted only while they are limited
	refusedMemory, refusedTubes, refusedWatching atomic.Uint64
}

// jobMemory is what a job takes beside its body: its record, its counters, and
// its entry in the index.
const jobMemory = int64(unsafe.Sizeof(job{}) + unsafe.Sizeof(counters{}) + unsafe.Sizeof(place(0)))

// charge counts a job with a body of size bytes, unless it would be too much.
func (e *Engine) charge(size uint32) bool {
	limit := e.cfg.Limits.Memory
	if limit == 0 {
		return true
	}
	n := jobMemory + arena.Footprint(size)
	if e.usage.memory.Add(n) > limit {
		e.usage.memory.Add(-n)
		e.usage.refusedMemory.Add(1)
		return false
	}
	return true
}

// refund counts a job off.
func (e *Engine) refund(size uint32) {
	if e.cfg.Limits.Memory != 0 {
		e.usage.memory.Add(-jobMemory - arena.Footprint(size))
	}
}
