//go:build !proof

package servertest

// Proof says that every test tries all that it can, not the part of it for make test.
const Proof = false
