package main

import "fmt"

// What is running. The Makefile replaces these by the linker's -X.
var (
	version = "0.1.0"
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

// statsVersion is the version that the command stats shows.
func statsVersion() string { return protocolLevel + "+trellis." + version }
