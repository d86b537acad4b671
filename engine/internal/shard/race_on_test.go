//go:build race

package shard

// raceEnabled: everything takes some ten times as long, and allocations are not
// what they are otherwise.
const raceEnabled = true
