//go:build race

package main

// raceEnabled says that the race detector watches the tests, so that it should
// watch the server too.
const raceEnabled = true
