package main

import (
	"os"
	"runtime"
)

// How many goroutines can run besides the event loops, at least.
const (
	spareOfServer = 1
	// A log that is synced before every reply has a goroutine that is always in a system
	// call, or has just been: it syncs, or waits for the next commit.
	spareOfSyncedServer = 2
	// Each read round and each commit of a member waits for one goroutine, while others are
	// in system calls of the disk: they write the log or a snapshot, or send one.
	spareOfMember = 2
)

// spareProcs lets more goroutines run than there are event loops, unless the operator has
// said how many.
//
// The runtime counts a goroutine in a system call (a loop that sleeps, a writer that syncs) as running until its
// monitor looks again, which may take 20 ms. A goroutine that a loop has woken before it fell asleep waits as long
// if nothing is spare. And on a machine with no more processors than loops the runtime would take the processor
// from a loop at almost every system call, only to find nobody to give it to: that costs a tenth of all processor
// time at 50 unpipelined connections.
func spareProcs(loops, spare int) {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < loops+spare {
		runtime.GOMAXPROCS(loops + spare)
	}
}
