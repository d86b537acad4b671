//go:build proof

package cluster

// proof tells that the tests run for `make proof`, with all repetitions and variants.
const proof = true
