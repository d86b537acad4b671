//go:build proof

package servertest

// Proof: see proof_off.go.
const Proof = true
