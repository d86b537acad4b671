//go:build proof

package spill

// proof tells that tests try every byte and every call, where they try some otherwise.
const proof = true
