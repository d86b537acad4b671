package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"trellis/engine"
)

// newInfo gathers what the command stats tells of the process and its machine.
func newInfo() (engine.Info, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return engine.Info{}, exitWith(exitSystem, fmt.Errorf("asking the system for its name: %w", err))
	}
	var id [8]byte
	rand.Read(id[:]) // never fails: it ends the process instead
	return engine.Info{
		PID:      os.Getpid(),
		Version:  statsVersion(),
		ID:       hex.EncodeToString(id[:]),
		Hostname: unix.ByteSliceToString(name.Nodename[:]),
		OS:       unix.ByteSliceToString(name.Version[:]),
		Platform: unix.ByteSliceToString(name.Machine[:]),
		Usage:    usage,
	}, nil
}

// usage is the processor time of this process.
func usage() (user, system time.Duration) {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0, 0 // it fails for bad arguments only
	}
	return time.Duration(r.Utime.Nano()), time.Duration(r.Stime.Nano())
}
