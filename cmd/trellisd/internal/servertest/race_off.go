//go:build !race

package servertest

// RaceEnabled: see race_on.go.
const RaceEnabled = false
