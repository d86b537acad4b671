package main

import (
	"math"
	"os"
	"runtime/debug"
)

// heapHeadroom is the part of the Go heap, in bytes, that does not grow with
// the number of jobs: connections, tubes and buffers.
const heapHeadroom = 256 << 20

// limitHeap makes the garbage collector work harder when the heap comes near to
// what it may be beside maxMemory bytes of jobs, unless the operator has said how
// much that is. Jobs and bodies themselves are not on that heap. What queues of
// jobs take of it is a quarter of what the smallest jobs take, at most, and twice
// that while a queue grows.
func limitHeap(maxMemory int64) {
	if maxMemory == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetMemoryLimit(min(maxMemory/2, math.MaxInt64-heapHeadroom) + heapHeadroom)
}
