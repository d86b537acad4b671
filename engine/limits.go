package engine

import (
	"sync/atomic"
	"unsafe"
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
	// Keys is the number of keys of jobs and tombstones, beyond which a put with a new
	// one is answered OUT_OF_MEMORY. Each counts in each tube. Those that are restored
	// from a journal or moved count, and are not refused.
	Keys int
}

// usage is what is held of what Limits bound, and how often that was too much.
type usage struct {
	_      [64]byte
	memory atomic.Int64 // bytes of jobs and of the loops' credits; counted only while they are limited
	_      [64]byte

	keys atomic.Int64 // unique and limited keys, each by tube

	refusedMemory, refusedTubes, refusedWatching, refusedKeys atomic.Uint64
}

// jobMemory is what a job takes beside its body: its record, its counters, and
// its entry in the index.
const jobMemory = int64(unsafe.Sizeof(job{}) + unsafe.Sizeof(counters{}) + unsafe.Sizeof(place(0)))
