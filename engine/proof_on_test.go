//go:build proof

package engine

// proof: every test does all that it can, not the part of it for make test.
const proof = true
