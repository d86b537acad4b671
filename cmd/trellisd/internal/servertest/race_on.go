//go:build race

package servertest

// RaceEnabled says that the race detector watches the tests, so that it should watch the server too.
const RaceEnabled = true
