package main

import (
	"os"
	"runtime"
)

// spareProc lets one more goroutine run than there are event loops, unless the
// operator has said how many. On a machine with no more processors than loops
// the runtime would otherwise take the processor from a loop at almost every
// system call, only to find nobody to give it to: that costs a tenth of all
// processor time at 50 unpipelined connections.
func spareProc(loops int) {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) <= loops {
		runtime.GOMAXPROCS(loops + 1)
	}
}
