//go:build proof

package shard

// proof: every test does all that it can, not the part of it for make test.
const proof = true
