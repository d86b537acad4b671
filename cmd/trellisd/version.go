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

// What is running. The Makefile replaces these by the linker's -X.
var (
	version = "0.2.0"
	commit  = "" // abbreviated hash
	date    = "" // of the commit
)

// protocolLevel is the release of beanstalkd whose protocol is spoken. Clients
// compare the front of the version in stats with what they need.
const protocolLevel = "1.13"

// versionLine is what -v prints.
func versionLine() string {
	if commit == "" {
		return "trellisd " + version
	}
	return fmt.Sprintf("trellisd %s (%s, %s)", version, commit, date)
}

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
		Version:  protocolLevel + "+trellis." + version,
		ID:       instanceID(id),
		Hostname: unix.ByteSliceToString(name.Nodename[:]),
		OS:       unix.ByteSliceToString(name.Version[:]),
		Platform: unix.ByteSliceToString(name.Machine[:]),
		Usage:    usage,
	}, nil
}

// instanceID is an id in hexadecimal digits that no reader of YAML takes for a number: stats does not quote it, as
// beanstalkd does not. So it begins with a letter, which is not the one of an exponent.
func instanceID(id [8]byte) string {
	return "abcdf"[id[0]%5:][:1] + hex.EncodeToString(id[:])[1:]
}

// usage is the processor time of this process.
func usage() (user, system time.Duration) {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0, 0 // it fails for bad arguments only
	}
	return time.Duration(r.Utime.Nano()), time.Duration(r.Stime.Nano())
}
