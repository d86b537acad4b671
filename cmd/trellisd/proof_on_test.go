//go:build proof

package main

// proof: every test tries all that it can, not the part of it for make test.
const proof = true
